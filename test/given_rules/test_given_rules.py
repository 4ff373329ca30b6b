"""Rules that a person gives for operators of another domain."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import onnx
import pytest
from onnx import parser
from own_ops import RULES, library, model

from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.sharding.rule.files import ENTRY_POINTS

RUN = Path(sys.executable).with_name("tensoropt-run")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text(RULES)
    return path


def opt(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_an_unknown_operator_is_refused_without_a_rule(tmp_path: Path, rules: Path, capsys) -> None:
    path = model(tmp_path)
    assert opt(path, "--rules", rules, "--emit", "prepare") == 0
    assert opt(path, "--emit", "prepare") == 1
    assert capsys.readouterr().err.endswith(
        "node 'twice' (Twice): unknown domain 'my.ops', "
        "expected sharding rules for it: --rules FILE.toml\n"
    )


def test_a_rule_tells_shapes_and_is_put_on_the_operation(tmp_path, rules: Path, capsys) -> None:
    assert opt(model(tmp_path), "--rules", rules, "--emit", "rules") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "my.ops." in line]
    twice, row_sum = lines[-2:]
    assert '"(i, j) -> (i, j)", ["i=8", "j=6"], {linear = [array<i64: 0>]}' in twice
    assert '"(i, j) -> (i)", ["i=8", "j=6 sum"], {linear = [array<i64: 0>]}' in row_sum
    assert "-> tensor<8xf32>" in row_sum


@pytest.mark.parametrize("search", [["--pick", "leanest"], ["--search", "random", "--seed", "3"]])
def test_from_rules_to_ranks(tmp_path: Path, rules: Path, capsys, search: list[str]) -> None:
    path, plan = model(tmp_path), tmp_path / "plan"
    assert opt(path, "--rules", rules, "--devices", "2", *search, "-o", plan) == 0
    command = [RUN, plan, "--check", path]
    done = subprocess.run([*command, "--custom-ops", library()], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("PASSED\n")


def test_text_with_rules_needs_no_file(tmp_path: Path, rules: Path, capsys) -> None:
    """What is in the IR counts: the file is read once."""
    path, text = model(tmp_path), tmp_path / "rules.mlir"
    assert opt(path, "--rules", rules, "--emit", "rules", "-o", text) == 0
    assert opt(path, "--rules", rules, "--mesh", "2", "--emit", "partition") == 0
    whole = capsys.readouterr().out
    assert opt(text, "--mesh", "2", "--emit", "partition") == 0
    assert capsys.readouterr().out == whole


def test_a_plan_loads_no_library_by_itself(tmp_path: Path, rules: Path) -> None:
    path, plan = model(tmp_path), tmp_path / "plan"
    assert opt(path, "--rules", rules, "--devices", "2", "-o", plan) == 0
    assert "custom" not in (plan / "plan.json").read_text()
    done = subprocess.run([RUN, plan], capture_output=True, text=True)
    assert done.returncode == 1
    assert "my.ops:" in done.stderr


def test_a_library_that_is_not_there(tmp_path: Path, rules: Path) -> None:
    path, plan = model(tmp_path), tmp_path / "plan"
    assert opt(path, "--rules", rules, "--devices", "2", "-o", plan) == 0
    command = [RUN, plan, "--custom-ops", tmp_path / "no.so"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"error: --custom-ops {tmp_path / 'no.so'}: no such file\n"


OP = '[[rule]]\nop = "my.ops.Own"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected [[rule]] once or more, got: none"),
        ("[[rules]]\n", "unknown key 'rules', expected one of rule, did you mean 'rule'?"),
        ('[[rule]]\nmap = "() -> ()"\n', "rule 1: has no op, expected one"),
        (OP, "rule 1 (my.ops.Own): has no map, expected one"),
        (OP + "map = 3\n", "rule 1 (my.ops.Own): has a wrong map, expected a string, got: 3"),
        (
            OP + 'map = "(i) (i)"\n',
            "rule 1 (my.ops.Own): has a wrong map, expected (i, k), (k, j) -> (i, j), "
            "got: '(i) (i)'",
        ),
        (
            OP + 'map = "(i, k) -> (i, j)"\nfactors = ["i", "j"]\n',
            "rule 1 (my.ops.Own): names an unknown factor, expected one of i, j, got: 'k'",
        ),
        (
            OP + 'map = "(i, j) -> (i)"\n',
            "rule 1 (my.ops.Own): splits j, which a result lacks, expected sum, max, min or whole",
        ),
        (
            OP + 'map = "(i) -> (i)"\nfactors = ["i=4"]\n',
            "rule 1 (my.ops.Own): fixes the size of i, expected a size from the operands, got: 4",
        ),
        (
            OP + 'map = "(i) -> (i)"\nlinear = [[1]]\n',
            "rule 1 (my.ops.Own): names an unknown operand, expected below 1, got: 1",
        ),
        (
            OP + 'map = "(i) -> (i)"\nlinear = [0]\n',
            "rule 1 (my.ops.Own): has a wrong linear, expected a list of lists of integers, "
            "got: [0]",
        ),
        (
            OP + 'map = "(i) -> (i)"\nlineer = [[0]]\n',
            "rule 1 (my.ops.Own): unknown key 'lineer', expected one of op, map, since_version, "
            "factors, additive, linear, flops, did you mean 'linear'?",
        ),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, capsys, text: str, message: str) -> None:
    path, plan = tmp_path / "my.toml", tmp_path / "plan"
    path.write_text(text)
    assert opt(model(tmp_path), "--rules", path, "--devices", "2", "-o", plan) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert err.startswith(f"error: {path}: ")
    assert not plan.exists()


def installed(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Let a package have the entry point ``value``."""
    entry = metadata.EntryPoint("own", value, ENTRY_POINTS)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry])


def test_an_installed_package_gives_rules(tmp_path, rules: Path, monkeypatch, capsys) -> None:
    (tmp_path / "own_package.py").write_text(f"RULES = {str(rules)!r}\nOTHER = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    installed(monkeypatch, "own_package:RULES")
    assert opt(model(tmp_path), "--emit", "rules") == 0
    assert '"(i, j) -> (i)", ["i=8", "j=6 sum"]' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("os:sep.join", "expected the path of a file, got: <built-in method join of str object"),
        ("no_such_package:RULES", "ModuleNotFoundError: No module named 'no_such_package'"),
    ],
)
def test_a_package_that_gives_none(tmp_path, monkeypatch, capsys, value: str, message: str) -> None:
    installed(monkeypatch, value)
    assert opt(model(tmp_path), "--emit", "rules") == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: entry point 'own' of tensoropt.rules: {message}")
    assert err.count("\n") == 1


def test_a_type_that_the_model_declares_counts_more(tmp_path: Path, capsys) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "my.ops" : 1]>
    g (float[8,6] x) => (float[4,6] y) <int64[4,6] t> {
      t = my.ops.Half (x)
      y = Cast <to = 1> (t)
    }"""
    onnx.save(parser.parse_model(text), tmp_path / "half.onnx")
    rules = tmp_path / "half.toml"
    rules.write_text('[[rule]]\nop = "my.ops.Half"\nmap = "(_, j) -> (_, j)"\n')
    assert opt(tmp_path / "half.onnx", "--rules", rules, "--emit", "rules") == 0
    assert "(tensor<8x6xf32>) -> tensor<4x6xi64>" in capsys.readouterr().out

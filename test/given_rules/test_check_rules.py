"""The proof of rules that a person gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_ops import RULES, library, model

from tensoropt.compiler.cli.opt import main


def check(path: Path, *arguments: object) -> int:
    return main([str(x) for x in (path, "--check-rules", *arguments)])


def written(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text)
    return path


def test_right_rules_are_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = written(tmp_path, RULES)
    assert check(model(tmp_path), "--rules", rules, "--custom-ops", library()) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(row[0], row[1], int(row[2])) for row in rows] == [
        ("twice", "2", 4),
        ("twice", "4", 3),
        ("twice", "2x2", 15),
        ("rows", "2", 4),
        ("rows", "4", 3),
        ("rows", "2x2", 15),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("j sum", "j max", "S(1) -> P(max) on mesh 2 differs by up to "),
        (
            'map = "(i, j) -> (i)"',
            'map = "(j, i) -> (i)"',
            "S(0) -> P(sum) on mesh 2 produces result 0 of another shape, expected [8] on a rank, ",
        ),
    ],
)
def test_wrong_rules_are_refuted(tmp_path: Path, capsys, old: str, new: str, message: str) -> None:
    rules = written(tmp_path, RULES.replace(old, new).replace("linear = [[0]]", ""))
    path = model(tmp_path)
    assert check(path, "--rules", rules, "--custom-ops", library()) == 1
    out, err = capsys.readouterr()
    start = f"error: {path}: node 'rows' (my.ops.RowSum) has a rule that is wrong: {message}"
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(start), err


def test_an_edited_rule_of_ours_is_checked(tmp_path: Path, capsys) -> None:
    text = tmp_path / "edited.mlir"
    text.write_text("""module attributes {topt.opset = {ai.onnx = 20 : i64}} {
      func.func @main(%x: tensor<4x8xf32> {topt.name = "x"})
          -> (tensor<4x8xf32> {topt.name = "y"}) {
        %0 = "onnx.Exp"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8"],
                {linear = [array<i64: 0>]}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
        return %0 : tensor<4x8xf32>
      }
    }""")
    assert check(text) == 1
    assert "(Exp) has a rule that is wrong: P(sum) -> P(sum) on mesh 2" in capsys.readouterr().err


def test_operators_that_nobody_has(tmp_path: Path, capsys) -> None:
    rules = written(tmp_path, RULES)
    assert check(model(tmp_path), "--rules", rules) == 1
    err = capsys.readouterr().err
    assert "node 'twice' (my.ops.Twice) does not run: " in err
    assert check(model(tmp_path), "--rules", rules, "--custom-ops", tmp_path / "no.so") == 1
    assert capsys.readouterr().err == f"error: --custom-ops {tmp_path / 'no.so'}: no such file\n"


def test_nothing_to_check(tmp_path: Path, capsys) -> None:
    text = tmp_path / "plain.mlir"
    text.write_text("""module attributes {topt.opset = {ai.onnx = 20 : i64}} {
      func.func @main(%x: tensor<4xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.name = "y"}) {
        %0 = "onnx.Exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }""")
    assert check(text) == 1
    assert capsys.readouterr().err.endswith(
        "only has built-in rules, expected rules in the model or --rules\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--custom-ops", "x.so"], "--custom-ops belongs to --check-rules, or to tensoropt-run"),
        (
            ["--check-rules", "--devices", "2"],
            "--check-rules plans nothing, expected no flags of planning or passes",
        ),
    ],
)
def test_flags_that_do_not_go_together(tmp_path: Path, capsys, flags, message: str) -> None:
    assert main([str(model(tmp_path)), *flags]) == 1
    assert capsys.readouterr().err == f"error: {message}\n"

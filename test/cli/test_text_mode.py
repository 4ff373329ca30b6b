"""The mlir-opt side: texts, passes, diagnostics."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

VALID = "func.func @f() {\n  return\n}\n"
INVALID = "func.func @f() -> i32 {\n  return\n}\n"


@pytest.fixture
def text(tmp_path: Path) -> Callable[[str], Path]:
    def write(content: str) -> Path:
        path = tmp_path / "a.mlir"
        path.write_text(content)
        return path

    return write


def test_stdin(opt, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(VALID))
    outcome = opt("-", "-p", "cse")
    assert outcome.status == 0
    assert "func.func @f()" in outcome.out
    assert outcome.err == ""


def test_error_names_file_line_and_column(opt, text) -> None:
    path = text(INVALID)
    outcome = opt(path)
    assert outcome.status == 1
    assert outcome.out == ""
    expected = "error: 'func.return' op has 0 operands, but enclosing function (@f) returns 1"
    assert outcome.err == f"{path}:2:3: {expected}\n"


def test_text_that_mlir_does_not_survive(opt, text) -> None:
    deep = 200_000
    path = text(f"module attributes {{t.a = {'[' * deep}{']' * deep}}} {{}}")
    outcome = opt(path)
    assert outcome.status == 1
    assert outcome.err == f"{path}: error: MLIR's parser ended by SIGSEGV\n"


def test_lines_count_from_the_top_of_a_split_file(opt, text) -> None:
    path = text(f"{VALID}// -----\n{INVALID}")
    assert f"{path}:6:3: error:" in opt(path, "--split-input-file").err


def test_parts_are_printed_apart(opt, text) -> None:
    outcome = opt(text(f"{VALID}// -----\n{VALID}"), "--split-input-file")
    assert outcome.out.count("module {") == 2
    assert "\n// -----\n" in outcome.out


def test_output_file_is_kept_only_on_success(opt, text, tmp_path: Path) -> None:
    target = tmp_path / "out.mlir"
    assert opt(text(INVALID), "-o", target).status == 1
    assert not target.exists()
    target.write_text("// before")
    assert opt(text(INVALID), "-o", target).status == 1
    assert target.read_text() == "// before"
    assert opt(text(VALID), "-o", target).status == 0
    assert "func.func @f" in target.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mlir", "out.mlir"]


def test_output_folder_is_refused(refused, text, tmp_path: Path) -> None:
    (folder := tmp_path / "folder").mkdir()
    assert "expected a file, got: a folder" in refused(text(VALID), "-o", folder)
    assert "expected an existing folder" in refused(text(VALID), "-o", tmp_path / "no" / "a.mlir")
    long = tmp_path / ("a" * 250)  # the file beside it, which is written first, has a longer name
    assert refused(text(VALID), "-o", long) == f"{long}: file name too long"


def test_bytes_that_are_no_text(refused, tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    path.write_bytes(b"\xff\xfe\x00")
    assert refused(path) == f"{path}: expected MLIR text in UTF-8, got: other bytes"


def test_locations_survive(opt, text) -> None:
    path = text('func.func @f() {\n  "onnx.X"() : () -> () loc("node one")\n  return\n}\n')
    assert 'loc("node one")' in opt(path).out


def test_printing_and_timing_go_to_stderr(opt, text) -> None:
    flags = ["-p", "cse,symbol-dce", "--mlir-print-ir-after-all", "--mlir-timing"]
    outcome = opt(text(VALID), *flags)
    assert outcome.out.startswith("module {")
    assert "IR after" not in outcome.out
    assert "// -----// IR after cse //----- //" in outcome.err
    assert "// -----// IR after symbol-dce //----- //" in outcome.err
    assert [line.split()[-1] for line in outcome.err.splitlines()[-4:]] == [
        "pass",
        "cse",
        "symbol-dce",
        "total",
    ]


def test_printing_after_one_pass(opt, text) -> None:
    outcome = opt(text(VALID), "-p", "cse,symbol-dce", "--mlir-print-ir-after", "cse")
    assert "IR after cse" in outcome.err
    assert "IR after symbol-dce" not in outcome.err


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("cs", "unknown pass 'cs', valid passes are"),
        ("cs", "did you mean 'cse'?"),
        ("cse{speed=3}", "pass 'cse{speed=3}': <Pass-Options-Parser>: no such option speed"),
        ("dce{a=1", "--pass-pipeline: at character 8 expected '}', got: 'the end'"),
        ("cse)", "--pass-pipeline: at character 4 expected ',' or the end, got: ')'"),
        ("cse,,dce", "--pass-pipeline: at character 5 expected the name of a pass, got: ',dce'"),
        ("func.func(cse", "--pass-pipeline: at character 14 expected ')', got: 'the end'"),
        ("func.func(dce)", "pass 'dce' runs on the whole module, expected it outside of"),
        ("partition{x=1}", "pass 'partition': unknown option 'x', valid choices are none"),
        ("search-strategies{device=3 mash=2}", "did you mean 'mesh'?"),
        ("search-strategies{devices=many}", "option 'devices': expected int, got: 'many'"),
        ("search-strategies{'}", "pass 'search-strategies': expected options as key=value"),
    ],
)
def test_wrong_pipeline(refused, text, pipeline: str, message: str) -> None:
    assert message in refused(text(VALID), "-p", pipeline)


@pytest.mark.parametrize("pipeline", ["", "builtin.module(cse)", "any(cse)", "func.func(cse,cse)"])
def test_forms_of_a_pipeline(opt, text, pipeline: str) -> None:
    assert opt(text(VALID), "-p", pipeline).status == 0


def test_a_failing_pass_is_named_with_those_before(opt, text) -> None:
    outcome = opt(text(VALID), "-p", "cse,symbol-dce,insert-reshards")
    assert outcome.status == 1
    assert "(in pass 'insert-reshards' after 'cse', 'symbol-dce')" in outcome.err


def test_types_that_do_not_fit_name_the_file_once(opt, text) -> None:
    path = text("""module attributes {topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64}} {
      func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w: tensor<9x4xf32> {topt.name = "w"})
          -> (tensor<*xf32> {topt.name = "y"}) {
        %0 = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<9x4xf32>) -> tensor<*xf32> loc("mm")
        return %0 : tensor<*xf32>
      }
    }""")
    outcome = opt(path, "-p", "infer-shapes")
    assert outcome.status == 1
    assert outcome.err == (
        f"{path}: error: node 'mm' (MatMul): types do not fit: "
        "incompatible dimensions for matrix multiplication (in pass 'infer-shapes')\n"
    )


def test_list_passes(opt) -> None:
    lines = opt("--list-passes").out.splitlines()
    assert any(line.startswith("insert-reshards  ") for line in lines)
    assert lines[-1].startswith("and the passes of MLIR, such as")

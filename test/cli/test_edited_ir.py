"""A test of IR that a person has edited wrongly: a line that says what, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

EDITS = {
    "mesh": ("@mesh, [", "@nowhere, [", "names an unknown mesh, expected @mesh, got: @nowhere"),
    "no mesh": ("shard.grid @mesh", "shard.grid @grid", "expected shard.grid @mesh in the module"),
    "size of the mesh": ("(shape = 2)", "(shape = 0)", "expected 1 or more, got: 0"),
    "axes of the mesh": ("(shape = 2)", "(shape = 2x2)", "expected 2 for mesh 2x2, got: 1"),
    "pieces": ("(shape = 2)", "(shape = 11)", "to divide by 11, got: "),
    "placement": (
        '["S(0)"]',
        '["banana"]',
        "expected R, S(<dim>) or P(sum|max|min), got: 'banana'",
    ),
    "dimension": ('["S(0)"]', '["S(7)"]', "expected a dimension below 2, got: S(7)"),
    "results": ("]>]>}", ']>, #topt.layout<@mesh, ["R"]>]>}', "results, expected 1, got: 2"),
    "operands": ("topt.strategy<[", 'topt.strategy<[#topt.layout<@mesh, ["R"]>, ', "of operands"),
    "attribute": ("topt.strategy =", "topt.strategie =", "did you mean 'topt.strategy'?"),
    "kind": ("topt.param", "topt.param = 3 : i64", "wrong kind of topt.param, expected no value"),
    "place": ("topt.param", 'topt.phase = "update"', "expected an operation, got: an argument"),
}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory, mlp: Path) -> str:
    """The IR of the model as it comes from the search, on two ranks."""
    from tensoropt.compiler.cli.opt import main

    path = tmp_path_factory.mktemp("ir") / "searched.mlir"
    argv = [
        mlp,
        "--emit",
        "search",
        "--mesh",
        "2",
        "--device",
        "v100",
        "--pick",
        "leanest",
        "-o",
        path,
    ]
    assert main([str(arg) for arg in argv]) == 0
    return path.read_text()


def test_ir_as_it_was_goes_on(opt, searched: str, tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(searched)
    assert opt(tmp_path / "m.mlir", "--emit", "partition", "-o", tmp_path / "p.mlir").status == 0
    assert "tensor<16x8xf32>" in (tmp_path / "p.mlir").read_text()


@pytest.mark.parametrize("name", EDITS)
def test_ir_that_says_what_cannot_be_is_refused(
    refused: Callable[..., str], searched: str, tmp_path: Path, name: str
) -> None:
    old, new, message = EDITS[name]
    assert old in searched
    (tmp_path / "m.mlir").write_text(searched.replace(old, new))
    line = refused(tmp_path / "m.mlir", "--emit", "partition", "-o", tmp_path / "p.mlir")
    assert message in line
    assert line.startswith(f"{tmp_path / 'm.mlir'}:")
    assert not (tmp_path / "p.mlir").exists()

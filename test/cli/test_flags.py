"""Every message about a flag."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Refused = Callable[..., str]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--pareot"], "unknown argument '--pareot', did you mean '--pareto'?"),
        (["--devices=0"], "--devices: expected a whole number from 1 to 1024, got: '0'"),
        (["--devices", "-3"], "--devices: expected a whole number from 1 to 1024, got: '-3'"),
        (["--devices", "four"], "--devices: expected a whole number from 1 to 1024, got: 'four'"),
        (["--devices", "1025"], "--devices: expected a whole number from 1 to 1024, got: '1025'"),
        (["--devices"], "--devices: expected one argument"),
        (["--mesh", "²"], "--mesh: expected positive sizes such as 2x4, got: '²'"),
        (
            ["--mesh", "1x1x1x1x1x1x2"],
            "--mesh: expected at most 6 axes, got: mesh 1x1x1x1x1x1x2 of 7",
        ),
        (["--mesh", "2x0"], "--mesh: expected positive sizes such as 2x4, got: '2x0'"),
        (
            ["--mesh", "2x3", "--devices", "4"],
            "--mesh: 2x3 has 6 ranks, expected 4 as in 4, 2x2, got: '2x3'",
        ),
        (
            ["--mesh", "1000000x2"],
            "--mesh: expected at most 1024 devices, got: mesh 1000000x2 of 2000000",
        ),
        (["--pareto", "--memory="], "--memory: expected a positive amount"),
        (["--pareto", "--pick="], "--pick: unknown point ''"),
        (["--pick", "slow", "--devices", "64"], "--pick: unknown point 'slow', valid choices are"),
        (["--pareto", "--search="], "--search: unknown search ''"),
        (["--pareto", "--plot", "no/a.svg"], "--plot no/a.svg: expected an existing folder"),
        (["--device", "h20"], "got: 'h20', did you mean 'h200'?"),
        (["--device", "none.toml"], "none.toml: expected a readable file"),
        (
            ["--search", "randm"],
            "valid choices are ft, pase, pase-bfs, autoddl, data-parallel, expert, ilp, "
            "mcmc, exhaustive, random, did you mean 'random'?",
        ),
        (["--objective", "tmie"], "valid choices are time, throughput, memory, devices, profile"),
        (["--pareto", "--format", "xml"], "--format: unknown form 'xml', valid choices are table"),
        (["--format", "json"], "--format needs a report, expected --pareto"),
        (["--memory", "lots"], "expected a positive amount such as 16GiB, 1.5GB or 4096"),
        (["--memory", "0"], "--memory: expected a positive amount"),
        (["--memory", "4 parsecs"], "units B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"),
        (["--seed", "3"], "--seed belongs to --search autoddl, mcmc or random, got: --search ft"),
        (["--search", "random", "--seed", "x"], "--seed: expected a whole number from 0"),
        (["--objective", "profile", "--mesh", "2"], "--objective profile tries many meshes"),
        (["--objective", "profile", "-o", "p"], "a family is of plans for training, expected"),
        (["--with-leanest"], "--with-leanest belongs to a family, expected --objective profile"),
        (["--objective", "memory", "--pick", "1"], "picks by itself, expected no --pick"),
        (["--netron", "a.html"], "--netron: expected a file ending in .onnx, got: 'a.html'"),
        (["--compare", "--netron", "a.onnx"], "table of searches, expected no --netron"),
        (["--report", "a.pdf"], "--report: expected a file ending in .html, got: 'a.pdf'"),
        (["--compare", "--report", "a.html"], "table of searches, expected no --report"),
        (["--objective", "profile", "--report", "a.html"], "--report is about one plan"),
        (["--plot", "a.gif"], "--plot: expected a file ending in .png or .svg, got: 'a.gif'"),
        (["--pareto", "--dim", "batch"], "--dim: expected NAME=SIZE such as batch=8, got: 'batch'"),
        (["--dim", "b=1", "--dim", "b=2", "--pareto"], "--dim: 'b' is given twice"),
        (["--pareto", "--dim", "b=-1"], "--dim b: expected a whole number from 0 to 2147483648"),
        (["--emit", "serach"], "--emit: unknown phase 'serach', valid choices are import"),
        (["--emit", "prepare", "--devices", "2"], "--emit prepare comes before the search"),
        (["--pareto", "-p", "cse"], "expected it without planning flags"),
        (["--emit", "import", "-p", "cse"], "expected it without --emit"),
        (["--verify-diagnostics"], "--verify-diagnostics needs MLIR text and passes"),
        (["--split-input-file", "--pareto"], "--split-input-file needs MLIR text and passes"),
        (["-p", "partitoin"], "unknown pass 'partitoin', valid passes are verify-onnx"),
    ],
)
def test_wrong_flag(refused: Refused, mlp: Path, flags: list[str], message: str) -> None:
    assert message in refused(mlp, *flags)


def test_no_input(refused: Refused) -> None:
    assert refused() == "expected an .onnx model, an .mlir file, or - for stdin, got: no input"


def test_missing_input(refused: Refused) -> None:
    assert refused("nowhere.mlir") == "nowhere.mlir: no such file or directory"


def test_missing_input_of_a_plan(refused: Refused) -> None:
    assert "nowhere.mlir: no such file" in refused("nowhere.mlir", "--pareto")


def test_dims_of_a_text(refused: Refused, tmp_path: Path) -> None:
    message = refused(tmp_path / "a.mlir", "--dim", "batch=8")
    assert message.startswith("--dim needs an .onnx model")


def test_netron_of_a_text(refused: Refused, tmp_path: Path) -> None:
    message = refused(tmp_path / "a.mlir", "--devices", "2", "--netron", tmp_path / "a.onnx")
    assert "expected an .onnx input or --weights MODEL.onnx, got: " in message


def test_plan_of_a_text(refused: Refused, tmp_path: Path) -> None:
    message = refused(tmp_path / "a.mlir", "--devices", "2", "-o", tmp_path / "plan")
    assert "a plan contains the weights of the model, expected an .onnx input" in message

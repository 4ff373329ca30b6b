"""The methods on a file of tables, by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensoropt.compiler.cli.instance import main
from tensoropt.compiler.comparison.case import Case, Limits
from tensoropt.compiler.comparison.registry import run_method
from tensoropt.compiler.search.problem.problem import Problem
from tensoropt.compiler.support.errors import UserError

FILE = str(Path(__file__).parents[1] / "search" / "instances" / "rnnlm_p8.npz")
LEAST = 4024963186688


@pytest.mark.parametrize("name", ["pase", "pase-bfs", "ilp"])
def test_time_only_methods_prove_their_time(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([FILE, "--search", name, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["min_time"] == LEAST
    assert (result["epsilon"], result["time_epsilon"], len(result["points"])) == (None, 0, 1)


def test_exhaustive_finds_the_frontier(capsys: pytest.CaptureFixture[str]) -> None:
    results = []
    for name in ("ft", "exhaustive"):
        assert main([FILE, "--search", name, "--format", "json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["points"] == results[1]["points"]
    assert results[1]["epsilon"] == 0


def test_no_bound_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([FILE, "--search", "mcmc", "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:5] == ["     epsilon none", "time_epsilon none"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--search", "mcmc", "--search-time", "3"],
            "--search-time belongs to --search ft or ilp",
        ),
        (["--search", "ilp", "--epsilon", "0.1"], "--epsilon belongs to --search ft, got: --sear"),
        (["--seed", "1"], "--seed belongs to --search autoddl, mcmc or random, got: --search ft"),
        (["--search", "expert"], "--search expert: tables do not say which ops they stand for"),
        (["--search", "ilp", "--search-time", "0"], "no solution in time"),
    ],
)
def test_refusals(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([FILE, *flags]) == 1
    assert message in capsys.readouterr().err


def test_unknown_name() -> None:
    with pytest.raises(UserError, match=r"--search: unknown search 'psae', .*did you mean 'pase'"):
        run_method("psae", Case(Problem([])), Limits())

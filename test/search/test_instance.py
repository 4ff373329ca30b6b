"""The PaSE instances: known minimum times, known sizes of frontiers, the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tensoropt.compiler.cli.instance import load_instance, main, solve_instance
from tensoropt.compiler.search.engine.ft import solve_frontier, solve_min_time
from tensoropt.compiler.support.errors import UserError

HERE = Path(__file__).parent / "instances"
MIN_TIME = {
    "alexnet_p8": 97098296512,
    "alexnet_p16": 70320712672,
    "rnnlm_p8": 4024963186688,
    "rnnlm_p16": 2476066881536,
    "inception3_p8": 782140602432,
    "inception3_p16": 673045949344,
    "transformer_p8": 1421082828800,
    "transformer_p16": 1004992614400,
}


@pytest.mark.parametrize("name", MIN_TIME)
def test_minimum_time(name: str) -> None:
    problem = load_instance(HERE / f"{name}.npz")
    point = solve_min_time(problem)
    assert point.time == MIN_TIME[name]
    assert problem.cost(point.assignment).time == MIN_TIME[name]


@pytest.mark.parametrize(
    ("name", "points"),
    [("alexnet_p8", 1070), ("alexnet_p16", 1646), ("rnnlm_p8", 14), ("rnnlm_p16", 21)],
)
def test_exact_frontier_has_the_known_number_of_points(name: str, points: int) -> None:
    solved = solve_instance(load_instance(HERE / f"{name}.npz"))
    assert len(solved.frontier.points) == points
    assert (solved.min_time, solved.frontier.epsilon) == (MIN_TIME[name], 0)


def test_wide_epsilon_covers_the_exact_frontier() -> None:
    problem = load_instance(HERE / "alexnet_p16.npz")
    exact = solve_frontier(problem)
    for epsilon in (0.01, 0.05):
        rough = solve_frontier(problem, epsilon=epsilon)
        assert rough.epsilon == 0 or len(rough.points) < len(exact.points)
        factor = 1 + rough.epsilon
        for point in exact.points:
            assert any(
                p.time <= point.time * factor and p.memory <= point.memory * factor
                for p in rough.points
            )


@pytest.mark.parametrize("name", ["inception3_p8", "inception3_p16", "transformer_p8"])
def test_five_per_cent_of_large_graphs(name: str) -> None:
    frontier = solve_frontier(load_instance(HERE / f"{name}.npz"), epsilon=0.05)
    assert frontier.epsilon <= 0.05
    assert frontier.points[0].time == MIN_TIME[name]
    memory = [point.memory for point in frontier.points]
    assert memory == sorted(memory, reverse=True)


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(HERE / "rnnlm_p8.npz"), "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result) == ["min_time", "min_memory", "seconds", "epsilon", "points"]
    assert result["min_time"] == result["points"][0][1] == MIN_TIME["rnnlm_p8"]
    assert result["min_memory"] == result["points"][-1][0]
    assert (result["epsilon"], len(result["points"])) == (0, 14)
    assert main([str(HERE / "rnnlm_p8.npz"), "--epsilon", "0.5"]) == 0
    assert "    min_time 4024963186688\n" in capsys.readouterr().out


def _started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tensoropt.compiler.cli.instance", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_prints_what_was_found() -> None:
    path = str(HERE / "transformer_p16.npz")
    process = _started(path, "--format", "json", "--progress")
    assert process.stderr is not None
    assert any("within" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    found = json.loads(out)
    assert found["min_time"] == MIN_TIME["transformer_p16"]
    assert found["epsilon"] > 0
    assert "interrupted: these are the results so far, within " in err.splitlines()[-1]


def test_a_reader_that_leaves_early() -> None:
    process = _started(str(HERE / "alexnet_p16.npz"))
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), errors) == (141, "")


def test_random_search_is_worse_and_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(HERE / "rnnlm_p8.npz"), "--search", "random", "--format", "json"]
    results = []
    for _ in range(2):
        assert main(arguments) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["points"] == results[1]["points"]
    assert results[0]["min_time"] > MIN_TIME["rnnlm_p8"]
    assert results[0]["epsilon"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npz"], "missing.npz: not a readable instance, expected an .npz file, got: "),
        ([__file__], "test_instance.py: not a readable instance, expected an .npz file, got: "),
        (
            [str(HERE / "rnnlm_p8.npz"), "--search", "randm"],
            "mcmc, exhaustive, random, did you mean 'random'?",
        ),
    ],
)
def test_command_line_mistakes(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "half.npz", domain=np.array([2]), time_0=np.ones(2))
    with pytest.raises(UserError, match="a table is missing, expected memory_0"):
        load_instance(tmp_path / "half.npz")

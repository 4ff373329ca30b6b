"""Ranks whose NCCL fails or hangs: what is said, and that the job ends."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from handmade import Perceptron
from launched import LIMITS_S
from mpi_ranks import under_mpi
from stand_ins import calls, environment

from tensoropt.runtime.cli.run import main
from tensoropt.runtime.inference.jobs import check_plan
from tensoropt.runtime.support.errors import UserError


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return Perceptron(tmp_path).plan(tmp_path / "plan")


def test_a_call_that_fails(plan: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOROPT_STAND_IN_FAULT", "1:2:fail")
    with pytest.raises(UserError) as error:
        check_plan(plan, plan.parent / "perceptron.onnx", provider="cuda", runs=3)
    assert str(error.value).startswith(f"rank 1 of 2: {plan}: ")
    assert "AllReduce node 'fc2_reduce': ncclAllReduce failed: unhandled cuda" in str(error.value)
    assert "(made to fail by the test)" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_rank_that_hangs(
    plan: Path, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENSOROPT_STAND_IN_FAULT", "1:1:hang")
    where = "ranks 0, 1 of 2 are in AllReduce node 'fc2_reduce' (collective 1)"
    for limit in LIMITS_S:
        before = time.monotonic()
        assert main([str(plan), "--provider", "cuda", "--timeout", str(limit)]) == 1
        took, err = time.monotonic() - before, capsys.readouterr().err.splitlines()[-1]
        if where in err and took < 3 * limit:
            break
    assert err == f"error: no result within --timeout {limit} s: {where}"
    assert took < 3 * limit


def test_abort_brings_both_ranks_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    env = environment(log, fault="1:2:hang")
    found = under_mpi(2, Path(__file__).with_name("aborting.py"), env=env)
    for rank, (ended, meanwhile) in enumerate(found):
        first, second, third = ended
        assert first == "no error"
        assert "AllReduce node 'total': ncclAllReduce failed: remote process exited" in second
        assert "AllReduce node 'total': its group's NCCL communicator was aborted" in third
        assert "AllReduce node 'total'" in meanwhile
        assert [call["call"] for call in calls(log, rank)].count("ncclCommAbort") == 1

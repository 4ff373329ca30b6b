"""Measurements survive their file, and grow with others of the same kind of machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from measured_plans import BASICS, MACHINE, measured, plan

from tensoropt.compiler.calibrate.floor import Floor
from tensoropt.compiler.calibrate.planned import PlannedOp, PlannedSend
from tensoropt.compiler.calibrate.sample_file import read_samples, samples_path, write_samples
from tensoropt.compiler.calibrate.samples import (
    CollectiveSample,
    Measurements,
    OpSample,
    Peak,
)
from tensoropt.compiler.cost.compute import Work
from tensoropt.compiler.support.errors import UserError

RELU = Work("Relu", "float32", 0.0, 4096.0)
STEP = PlannedOp(Work("Mul", "float32", 0.0, 8192.0, 4096.0), ("Add", ""))
GATHER = CollectiveSample("all_gather", 2, 1024, 3e-6)


def whole() -> Measurements:
    sent = plan("a", [1e6, 3e6])
    sends, ops = ((PlannedSend("all_reduce", 2, 64), 3),), (*sent.step.ops, (STEP, 2))
    step = replace(sent.step, sends=sends, ops=ops, copies=2)
    sizes = {"predicted_bytes": 100, "measured_bytes": 110}
    processes = {"predicted_process_bytes": 300, "process_bytes": 290}
    plans = [replace(sent, step=step, **sizes, **processes), plan("b", [2e6])]
    return Measurements(MACHINE, BASICS, [OpSample(RELU, ("Conv",), 0.0, 2)], [GATHER], plans)


def test_all_of_it_comes_back(tmp_path: Path) -> None:
    path = samples_path(tmp_path / "here.toml")
    assert path.name == "here.samples.jsonl"
    write_samples(path, whole())
    found = read_samples(path)
    assert found.plans == [replace(own, ops=list(own.ops)) for own in whole().plans]
    assert replace(found, plans=[]) == replace(whole(), plans=[])
    assert len(path.read_text().splitlines()) == 1 + 1 + 1 + 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected measurements, got: an empty file"),
        ("{}", ":1: expected measurements as this tensoropt-profile writes them, or --anew"),
        ("nothing", ":1: expected measurements"),
        (None, ":2: expected measurements"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "here.samples.jsonl"
    write_samples(path, measured([]))
    path.write_text(path.read_text() + '{"other": 1}\n' if text is None else text)
    with pytest.raises(UserError, match=message):
        read_samples(path)


def test_the_faster_of_two_counts() -> None:
    """What else runs on a machine only makes things slower."""
    slow, fast = plan("a", [1e6], off=2.0), plan("a", [1e6])
    basics = replace(BASICS, floor=Floor(1e-6, 5e-7, 1e-6), peaks={"float32": Peak(2e11, 0.7)})
    one = Measurements(MACHINE, BASICS, [OpSample(RELU, (), 3e-6)], [GATHER], [slow])
    other = Measurements(
        MACHINE,
        basics,
        [OpSample(RELU, (), 2e-6), OpSample(RELU, ("Add",), 9e-6)],
        [replace(GATHER, time_s=4e-6), replace(GATHER, bytes=4096)],
        [fast, plan("b", [1e6])],
    )
    both = one.merge(other)
    assert [own.time_s for own in both.common] == [2e-6, 9e-6]
    assert [(own.bytes, own.time_s) for own in both.collectives] == [(1024, 3e-6), (4096, 3e-6)]
    assert both.plans == other.plans
    assert both.basics == basics
    assert other.merge(one).plans == other.plans

"""Nodes of a plan add up to its step, and common operators fill in what plans say nothing of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measured_plans import measured, plan

from tensoropt.compiler.calibrate.agreement import scale_to_step
from tensoropt.compiler.calibrate.description_fit import Identity, describe
from tensoropt.compiler.calibrate.samples import Measurements, OpSample
from tensoropt.compiler.cost.compute import Work
from tensoropt.compiler.cost.device import Device, load_device

PLAIN = load_device("cpu")


def sample(operator: str, time_s: float, *context: str, moved: float = 1e6) -> OpSample:
    return OpSample(Work(operator, "float32", 0.0, moved), context, time_s)


def device(whole: Measurements) -> Device:
    return describe(Identity("here", PLAIN, ""), whole, checked=False).device


@pytest.mark.parametrize(("step", "wanted"), [(0.8, 0.8), (1.3, 1.0), (0.1, 0.5)])
def test_nodes_take_no_longer_than_their_step(step: float, wanted: float) -> None:
    own = plan("a", [1e6, 3e6])
    slow = replace(own, measured_s=step * own.measured_s)
    pairs = zip(scale_to_step(slow, PLAIN), own.ops, strict=True)
    times = [one.time_s / before.time_s for one, before in pairs]
    assert times == pytest.approx([wanted] * 2)


def test_what_follows_a_collective_is_no_sample() -> None:
    ops = [sample("Relu", 1e-5, "Add"), sample("Relu", 9e-5, "tensoropt.AllReduce")]
    own = replace(plan("a", [1e6]), measured_s=1.0, ops=ops)
    found = device(measured([own])).operators["Relu", "float32"]
    assert found.time_s(0.0, 1e6) == pytest.approx(1e-5)


def test_common_operators_say_what_plans_do_not() -> None:
    """Plans know an operator as a part of others only; its line, and a context that they lack, come
    from common operators; a context that plans know stays as they say."""
    own = replace(plan("a", [1e6]), measured_s=1.0, ops=[sample("Relu", 0.0, "Conv")])
    common = [
        *(sample("Relu", 1e-11 * moved, moved=moved) for moved in (1e5, 1e6)),
        sample("Relu", 0.0, "Sum"),
        sample("Relu", 2e-5, "Conv"),
    ]
    found = device(replace(measured([own]), common=common)).operators["Relu", "float32"]
    assert found.fused == {("Conv",), ("Sum",)}
    assert found.time_s(0.0, 3e5) == pytest.approx(3e-6, rel=1e-3)

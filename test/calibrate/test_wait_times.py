"""Steps of several ranks take longer than their parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measured_plans import measured, plan

from tensoropt.compiler.calibrate.description_fit import Identity, describe
from tensoropt.compiler.calibrate.planned import PlannedSend
from tensoropt.compiler.calibrate.samples import CollectiveSample, PlanSample
from tensoropt.compiler.cost.communication import collective_time_s
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.cost.measurements import Waiting
from tensoropt.runtime.layout.mesh import Mesh

SENT_S, WAIT_S, PART = 2e-6, 3e-5, 0.05
COLLECTIVES = [CollectiveSample("all_reduce", 2, size, SENT_S) for size in (1024, 4096)]


def waiting_plan(flops: float, sends: int, ranks: int = 2) -> PlanSample:
    """Return a plan whose ranks wait at each collective and in proportion to their operators."""
    own = plan("a", [flops])
    send = PlannedSend("all_reduce", 2, 2048)
    step = replace(own.step, ranks=ranks, sends=((send, sends),) if sends else ())
    time_s = own.measured_s * (1 + PART) + sends * (SENT_S + WAIT_S)
    return replace(own, step=step, measured_s=time_s if ranks > 1 else own.measured_s)


def fitted(*plans: PlanSample) -> Device:
    whole = replace(measured(plans), collectives=COLLECTIVES)
    return describe(Identity("here", load_device("cpu"), ""), whole, checked=False).device


PLANS = [waiting_plan(*one) for one in ((1e7, 0), (2e7, 4), (5e6, 9), (8e6, 2), (3e7, 1))]


def test_both_ways_to_wait_are_found() -> None:
    device = fitted(*PLANS)
    assert list(device.waiting) == [2]
    waits = device.waits(2)
    assert waits.collective_s == pytest.approx(WAIT_S, rel=0.02)
    assert waits.operators == pytest.approx(PART, rel=0.05)
    for own in PLANS:
        assert own.step.time_s(device) == pytest.approx(own.measured_s, rel=1e-2)


def test_one_rank_waits_for_none() -> None:
    alone = [waiting_plan(1e6 * n, 0, ranks=1) for n in range(1, 7)]
    device = fitted(*PLANS, *alone)
    assert device.waits(1) == Waiting()
    for own in alone:
        assert own.step.time_s(device) == pytest.approx(own.measured_s, rel=1e-2)


def test_few_plans_say_nothing() -> None:
    assert fitted(*PLANS[:3]).waiting == {}


def test_steps_that_are_faster_than_predicted_do_not_wait() -> None:
    quick = [replace(own, measured_s=own.measured_s / 3) for own in PLANS]
    assert fitted(*quick).waits(2) == Waiting()


def test_the_search_waits_too() -> None:
    device, mesh = fitted(*PLANS), Mesh((2,))
    found = collective_time_s("all_reduce", 2048, (0,), mesh, device)
    still = collective_time_s("all_reduce", 2048, (0,), mesh, replace(device, waiting={}))
    assert found - still == pytest.approx(WAIT_S, rel=0.02)


def test_numbers_of_ranks_that_were_not_measured_wait_as_the_next() -> None:
    device = replace(load_device("cpu"), waiting={2: Waiting(1.0), 8: Waiting(2.0)})
    waits = [device.waits(ranks).collective_s for ranks in (1, 2, 3, 8, 64)]
    assert waits == [0.0, 1.0, 2.0, 2.0, 2.0]

"""Collectives: the formulas, and that more never costs less."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.cost.communication import collective_time_s
from tensoropt.compiler.cost.device import Device, Link, load_device
from tensoropt.compiler.cost.measurements import MeasuredCurve, Waiting
from tensoropt.runtime.layout.mesh import Mesh

KINDS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]

# 1 s a message, 1 byte/s, and a launch that is told apart by its size.
UNIT = dataclasses.replace(
    load_device("cpu"),
    launch_overhead_s=1000.0,
    devices_per_node=4,
    intra_node=Link(1.0, 1.0),
    network=Link(10.0, 0.5),
    waiting={},
)


@pytest.mark.parametrize(
    ("kind", "small", "large"),
    [
        # p = 4, so L = 2; 0 bytes leave the messages, 800 bytes take the algorithm of least volume.
        ("all_reduce", 2, 4 + 2 * 3 / 4 * 800),
        ("all_gather", 2, 2 + 3 * 800),
        ("reduce_scatter", 2, 2 + 3 / 4 * 800),
        ("all_to_all", 2, 3 + 3 / 4 * 800),
        ("all_to_all_rows", 3, 3 + 3 / 4 * 800),
    ],
)
def test_formulas(kind: str, small: float, large: float) -> None:
    mesh = Mesh((4,))
    assert collective_time_s(kind, 0, (0,), mesh, UNIT) == 1000 + small
    assert collective_time_s(kind, 800, (0,), mesh, UNIT) == 1000 + large


def test_the_faster_algorithm_counts() -> None:
    mesh = Mesh((4,))
    assert collective_time_s("all_reduce", 2, (0,), mesh, UNIT) == 1000 + 2 + 2 * 2
    assert collective_time_s("all_to_all", 2, (0,), mesh, UNIT) == 1000 + 2 + 2


def test_a_permute_takes_a_piece_of_a_measured_gather() -> None:
    curve = MeasuredCurve(((5.0, 6.0),), 3.0)
    measured = dataclasses.replace(UNIT, collectives={("all_gather", 4): curve})
    time_s = collective_time_s("collective_permute", 12, (0,), Mesh((4,)), measured)
    assert time_s == pytest.approx(5 + 6 / 3 * 12 + 3 * (12 / 3) ** 0.5)


def test_rows_of_unequal_numbers_take_a_measured_exchange_of_equal_parts() -> None:
    curves = {kind: MeasuredCurve(((1.0, n),), 0.0) for n, kind in enumerate(KINDS)}
    measured = dataclasses.replace(
        UNIT, collectives={(kind, 4): curve for kind, curve in curves.items()}
    )
    rows, equal = (
        collective_time_s(kind, 12, (0,), Mesh((4,)), measured)
        for kind in ("all_to_all_rows", "all_to_all")
    )
    assert rows == equal


@pytest.mark.parametrize("kind", KINDS)
def test_the_slowest_link_carries_a_group_over_several_axes(kind: str) -> None:
    mesh = Mesh((2, 2, 2))
    slow = dataclasses.replace(UNIT, intra_node=UNIT.network)
    inside = collective_time_s(kind, 80, (1, 2), mesh, UNIT)
    across = collective_time_s(kind, 80, (0, 2), mesh, UNIT)
    assert inside < across == collective_time_s(kind, 80, (0, 2), mesh, slow)
    assert across == collective_time_s(kind, 80, (0,), Mesh((4, 4)), UNIT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_one_is_free(kind: str) -> None:
    assert collective_time_s(kind, 1 << 30, (0,), Mesh((1, 4)), UNIT) == 0
    assert collective_time_s(kind, 1 << 30, (), Mesh((4,)), UNIT) == 0


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("all_reduce", 400), ("reduce_scatter", 400), ("all_gather", 100), ("all_to_all", 100)],
)
def test_all_wait_by_the_root_of_the_whole_tensor(kind: str, sent: int) -> None:
    waits = dataclasses.replace(UNIT, waiting={2: Waiting(s_per_root_byte=3.0)})
    for mesh, axes in ((Mesh((4,)), (0,)), (Mesh((2, 2, 2)), (0, 2))):
        longer = collective_time_s(kind, sent, axes, mesh, waits)
        assert longer - collective_time_s(kind, sent, axes, mesh, UNIT) == 3.0 * 20
    assert collective_time_s(kind, sent, (), Mesh((4,)), waits) == 0


@given(
    st.sampled_from(KINDS),
    st.integers(0, 1 << 34),
    st.integers(0, 1 << 34),
    st.integers(1, 64),
    st.sampled_from([load_device(name) for name in ("cpu", "h200", "gtx1080ti")]),
)
def test_more_bytes_or_ranks_never_take_less(
    kind: str, size: int, more: int, p: int, device: Device
) -> None:
    time_s = collective_time_s(kind, size, (0,), Mesh((p,)), device)
    assert time_s <= collective_time_s(kind, size + more, (0,), Mesh((p,)), device)
    # Groups of sizes that were not measured are predicted from the links, which may be faster.
    links = dataclasses.replace(device, collectives={})
    time_s = collective_time_s(kind, size, (0,), Mesh((p,)), links)
    assert time_s <= collective_time_s(kind, size, (0,), Mesh((p + 1,)), links)


@given(st.integers(0, 1 << 34), st.integers(2, 64))
def test_all_reduce_takes_no_longer_than_its_two_halves(size: int, p: int) -> None:
    mesh, device = Mesh((p,)), load_device("h200")
    halves = collective_time_s("reduce_scatter", size, (0,), mesh, device) + collective_time_s(
        "all_gather", size / p, (0,), mesh, device
    )
    assert collective_time_s("all_reduce", size, (0,), mesh, device) <= halves * (1 + 1e-6)

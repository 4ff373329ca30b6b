"""A description that was measured is one that --device takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tensoropt.compiler.calibrate.description import Description
from tensoropt.compiler.calibrate.fit import FittedCollective, FittedOperator
from tensoropt.compiler.calibrate.floor import Floor
from tensoropt.compiler.calibrate.samples import Basics, Peak
from tensoropt.compiler.cost.communication import collective_time_s
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.cost.machine import Machine
from tensoropt.compiler.cost.measurements import MeasuredCurve, Operator
from tensoropt.compiler.cost.overlap import Overlap
from tensoropt.compiler.cost.process import Process
from tensoropt.runtime.layout.mesh import Mesh

PROCESS = Process(80_000_000, 1_000_000, 9_000_000, 9000, 0.125)
BESIDE = Overlap(1.25e-5, 0.875)
CURVE = MeasuredCurve(((1.5e-6, 1e-10), (-3.25e-4, 5e-10)), 2e-9)
GATHERS = MeasuredCurve(((4e-6, 3e-10),))


def operator(name: str, dtype: str, held: Operator) -> FittedOperator:
    return FittedOperator(name, dtype, held, 3, 1, 1e-3, 0.04, 0.1)


CONV = Operator(1e-6, 5e-12, 2e-11, frozenset(), 4 << 20, 1e-10)
DESCRIPTION = Description(
    name='a "machine"',
    base=load_device("cpu"),
    source="Measured in a test.",
    machine=Machine("a processor", "cpu", 4, 1, "1.31"),
    basics=Basics(
        Floor(2e-6, 3e-7, 1e-6), {"float32": Peak(2e11, 0.75)}, 2.5e10, 2**33, PROCESS, BESIDE
    ),
    operators=[
        operator("Conv:grouped", "float32", CONV),
        operator("com.microsoft.Gelu", "float16", Operator(0.0, 0.0, 4e-11)),
        operator("Add", "float32", Operator(2e-7, 0, 1e-11, frozenset({("", "Mul"), ("Conv",)}))),
    ],
    collectives=[
        FittedCollective("all_reduce", 2, CURVE, 8, 0.1, 0.2),
        FittedCollective("all_gather", 4, GATHERS, 8, 0.1, 0.2),
    ],
)


def loaded(description: Description, folder: Path) -> Device:
    path = folder / "here.toml"
    path.write_text(description.toml(), encoding="utf-8")
    return load_device(str(path))


def test_all_that_was_measured_comes_back(tmp_path: Path) -> None:
    device = loaded(DESCRIPTION, tmp_path)
    assert (device.name, device.devices_per_node) == ('a "machine"', 4)
    assert (device.launch_overhead_s, device.step_overhead_s) == (3e-7, 2e-6)
    assert (device.peak_flop_per_s("float32"), device.contraction_efficiency) == (2e11, 0.75)
    assert device.memory_capacity_bytes == 2**33
    assert (device.process, device.overlap) == (PROCESS, BESIDE)
    for held in DESCRIPTION.operators:
        own = device.operators[held.name, held.dtype]
        assert own.fused == held.operator.fused
        assert own.time_s(1e9, 1e9) == pytest.approx(held.operator.time_s(1e9, 1e9), rel=1e-3)
    assert device.collectives == {("all_reduce", 2): CURVE, ("all_gather", 4): GATHERS}


def test_types_that_were_not_measured_keep_their_ratio(tmp_path: Path) -> None:
    base, device = load_device("cpu"), loaded(DESCRIPTION, tmp_path)
    ratio = base.peak_flop_per_s("int8") / base.peak_flop_per_s("float32")
    assert device.peak_flop_per_s("int8") == pytest.approx(2e11 * ratio, rel=1e-3)


def test_the_network_is_that_of_the_base(tmp_path: Path) -> None:
    assert loaded(DESCRIPTION, tmp_path).network == load_device("cpu").network


def test_the_link_follows_from_the_widest_gather(tmp_path: Path) -> None:
    link = loaded(DESCRIPTION, tmp_path).intra_node
    assert link.latency_s == pytest.approx((4e-6 - 3e-7) / 2, rel=1e-3)  # two rounds of four ranks
    assert link.bandwidth_bytes_per_s == pytest.approx(3 / 3e-10, rel=1e-3)


def test_one_rank_has_no_links_to_measure(tmp_path: Path) -> None:
    device = loaded(replace(DESCRIPTION, collectives=[]), tmp_path)
    assert device.intra_node == load_device("cpu").intra_node


def test_the_same_measurements_give_the_same_text() -> None:
    shuffled = replace(DESCRIPTION, operators=DESCRIPTION.operators[::-1])
    assert shuffled.toml() == DESCRIPTION.toml()


@pytest.mark.parametrize(
    ("shape", "axes", "measured"),
    [((2,), (0,), True), ((2, 2), (0,), True), ((4,), (0,), False), ((8, 2), (1,), True),
     ((2, 8), (0,), False)],
)  # fmt: skip
def test_what_was_measured_counts_for_groups_of_its_size_on_one_node(
    tmp_path: Path, shape: Sequence[int], axes: Sequence[int], measured: bool
) -> None:
    device, mesh = loaded(DESCRIPTION, tmp_path), Mesh(tuple(shape))
    plain = replace(device, collectives={})
    for size in (1e3, 1e6, 1e8):
        found = collective_time_s("all_reduce", size, axes, mesh, device)
        lines_s = [fixed + slope * size for fixed, slope in CURVE.lines]
        expected = max(lines_s) + CURVE.s_per_root_byte * size**0.5
        if not measured:
            expected = collective_time_s("all_reduce", size, axes, mesh, plain)
        assert found == pytest.approx(expected)

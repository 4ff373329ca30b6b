"""What the bodies of If, Loop and Scan take, in time and in memory."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.cost.bodies import open_turns
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.cost.memory import program_memory
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.search import FrontierPoint, SearchOptions, search_frontier
from tensoropt.dialects.mlir import ir
from tensoropt.passes.search_strategies import annotate
from tensoropt.runtime.layout.mesh import Mesh

DEVICE = load_device("cpu")
HEADER = '<ir_version: 10, opset_import: ["" : 20]>'

LOOP = """g (float[64,64] x, float[64,64] w, bool more) => (float[64,64] y) {{
    turns = Constant <value = int64 {{{turns}}}> ()
    y = Loop (turns, {first}, x) <body = b (int64 i, bool c, float[64,64] s)
        => (bool d, float[64,64] t) {{
        {condition}
        t = MatMul (s, w)
    }}>
}}"""

SCAN = """g (float[{length},64,64] x, float[64,64] w, float[64,64] zero) => (float[64,64] y) {{
    y = Scan <num_scan_inputs = 1, body = b (float[64,64] s, float[64,64] part)
        => (float[64,64] t) {{
        h = MatMul (part, w)
        t = Add (s, h)
    }}> (zero, x)
}}"""

IF = """g (bool c, float[64,64] x, float[64,{n}] w, float[{n},64] v) => (float[64,64] y) {{
    y = If (c) <then_branch = t () => (float[64,64] a) {{
        h = MatMul (x, w)
        a = MatMul (h, v)
    }}, else_branch = e () => (float[64,64] r) {{ r = Relu (x) }}>
}}"""

NESTED = """g (bool c, float[64,64] x) => (float[64,64] y) {{
    y = If (c) <then_branch = t () => (float[64,64] a) {{
        turns = Constant <value = int64 {{{turns}}}> ()
        none = Constant <value = bool {{1}}> ()
        a = Loop (turns, none, x) <body = b (int64 i, bool k, float[64,64] s)
            => (bool d, float[64,64] r) {{
            d = Identity (k)
            r = MatMul (s, s)
        }}>
    }}, else_branch = e () => (float[64,64] r) {{ r = Relu (x) }}>
}}"""


def loop(turns: int, *, condition: str = "d = Identity (c)", first: str = "more") -> str:
    return LOOP.format(turns=turns, condition=condition, first=first)


def prepared(text: str, folder: Path) -> ir.Module:
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(HEADER + text), path)
    module = driver.load(path, {})
    driver.advance(module, "rules")
    return module


def fastest(module: ir.Module, devices: int = 1) -> FrontierPoint:
    found = search_frontier(module, [Mesh((devices,))], DEVICE, SearchOptions())
    return found.points[0]


def time_s(text: str, folder: Path) -> float:
    return fastest(prepared(text, folder)).time_s


@pytest.mark.parametrize(
    ("one", "two", "eleven"),
    [
        (loop(1), loop(2), loop(11)),
        (SCAN.format(length=1), SCAN.format(length=2), SCAN.format(length=11)),
        *[tuple(NESTED.format(turns=turns) for turns in (1, 2, 11))],
    ],
    ids=["Loop", "Scan", "Loop in If"],
)
def test_the_time_rises_in_proportion(one: str, two: str, eleven: str, tmp_path: Path) -> None:
    first, second, last = (time_s(text, tmp_path) for text in (one, two, eleven))
    each = second - first
    assert each > DEVICE.launch_overhead_s
    assert last - first == pytest.approx(10 * each, rel=0.1)


def test_a_branch_takes_what_the_dearer_does(tmp_path: Path) -> None:
    small, large = (time_s(IF.format(n=n), tmp_path) for n in (8, 4096))
    products_s = 2 * 2 * 64 * 64 * (4096 - 8) / DEVICE.peak_flop_per_s("float32")
    assert large - small > products_s
    assert small > time_s(IF.format(n=0), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        loop(2**63 - 1),
        loop(10, condition="z = ReduceMax <keepdims = 0> (s) d = Less (z, z)"),
    ],
    ids=["while", "until"],
)
def test_a_body_that_runs_nobody_knows_how_often_counts_once(text: str, tmp_path: Path) -> None:
    module = prepared(text, tmp_path)
    assert open_turns(module) == ["Loop_1"]
    once = time_s(loop(1), tmp_path)
    assert once <= fastest(module).time_s < 3 * once


def test_a_count_that_is_known_is_not_told(tmp_path: Path) -> None:
    for text in (loop(3), SCAN.format(length=3), IF.format(n=8), NESTED.format(turns=2)):
        assert open_turns(prepared(text, tmp_path)) == []


def test_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(HEADER + loop(2**63 - 1)), path)
    assert main([str(path), "--devices", "2"]) == 0
    assert (
        "note: the body of 'Loop_1' may run any number of times and counts once\n"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("devices", [1, 2])
def test_memory_inside_counts(devices: int, tmp_path: Path) -> None:
    module = prepared(IF.format(n=4096), tmp_path)
    point = fastest(module, devices)
    inside = 64 * 4096 * 4 + 64 * 64 * 4
    assert point.transient_bytes >= inside
    annotate(module, point, "cpu")
    for phase in ("reshard", "partition"):
        driver.run_phase(module, phase)
    assert program_memory(module).transient_bytes == point.transient_bytes

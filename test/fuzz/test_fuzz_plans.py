"""Random graphs under random plans: a sample, and that what is wrong is found and made small."""

from __future__ import annotations

from pathlib import Path

import fuzz_plans
import numpy as np
import onnx
import pytest
from fuzz import joined
from fuzz.builder import bits_of
from fuzz.graphs import Case, random_case
from fuzz.joined import StuckError, join
from fuzz.minimise import minimise
from fuzz.noise import spread
from fuzz.plans import Choice, compare_values, try_plans
from onnx import parser


def case_of(text: str, **feeds: object) -> Case:
    model = parser.parse_model(text)
    arrays = {name: np.asarray(x, np.float32) for name, x in feeds.items()}
    return Case(0, model, arrays, frozenset(n for node in model.graph.node for n in node.output))


PRODUCT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[4,8] x, float[8,4] w) => (float[4,4] z, float[4,8] u) {
  y = MatMul (x, w)
  z = Relu (y)
  u = Neg (x)
}"""


def test_a_sample_of_random_graphs_is_right(tmp_path: Path) -> None:
    """`make fuzz-plans` runs as many more as wanted."""
    report = fuzz_plans.sweep(range(50), 2, jobs=1, folder=tmp_path)
    assert report.findings == {}
    assert report.graphs >= 47
    assert len(report.operators) > 80


def test_a_case_is_the_same_for_the_same_seed() -> None:
    one, other = random_case(7), random_case(7)
    assert one.model.SerializeToString() == other.model.SerializeToString()
    assert all(np.array_equal(one.feeds[name], other.feeds[name]) for name in one.feeds)


def test_what_is_wrong_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    case = case_of(PRODUCT, x=rng.standard_normal((4, 8)), w=rng.standard_normal((8, 4)))
    plans = [Choice((2,), seed) for seed in range(20)]
    assert try_plans(case, plans) is None
    monkeypatch.setitem(joined._COMBINED, "sum", "Max")
    found = try_plans(case, plans)
    assert found is not None
    assert found.phase == "values"
    small, found = minimise(case, found)
    assert len(small.model.graph.node) <= 1
    assert "expected" in found.text


def rank(order: str) -> onnx.ModelProto:
    calls = {
        "a": "y, t1 = tensoropt.AllReduce <group = [0, 1], reduction = 'sum'> (x, t0)",
        "b": "y, t1 = tensoropt.AllReduce <group = [0, 1], reduction = 'max'> (x, t0)",
        "none": "y = Relu (x)",
    }
    start = "t1, h, p = tensoropt.AllReduceStart <group = [0, 1], reduction = 'sum'> (t0, x)"
    calls |= {
        "later": f"{start} y = tensoropt.AllReduceWait (h, p)",
        "never": f"{start} y = Relu (p)",
    }
    text = f"""<ir_version: 10, opset_import: ["" : 20, "tensoropt" : 1]>
    g (float[2] x, int64[1] t0) => (float[2] y) {{ {calls[order]} }}"""
    return parser.parse_model(text.replace("'", '"'))


def test_ranks_run_together() -> None:
    model = join([rank("a"), rank("a")])
    assert [node.op_type for node in model.graph.node] == ["Add", "Identity", "Identity"]


def test_a_start_is_the_collective_and_a_wait_passes_on() -> None:
    model = join([rank("a"), rank("later")])
    assert [node.op_type for node in model.graph.node] == ["Add", *["Identity"] * 3]


@pytest.mark.parametrize("other", ["b", "none", "never"])
def test_ranks_that_do_not_agree_are_found(other: str) -> None:
    with pytest.raises(StuckError):
        join([rank("a"), rank(other)])


def test_values_are_compared_by_their_own_scale() -> None:
    want = np.array([1e-12, 2e-12, np.nan, np.inf], np.float32)
    assert compare_values(want, want, want) is None
    assert compare_values(np.nan_to_num(want, posinf=np.inf), want, want) is not None
    assert compare_values(want * np.float32(1.01), want, want) is not None
    assert compare_values(want + np.float32(1e-20), want, want) is None
    whole = np.array([3, 4])
    assert compare_values(whole + 1, whole, whole) is not None


def test_rounding_is_measured() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[1] x, float[1] big) => (float[1] y, float[1] z) {
      a = Add (x, big)
      y = Sub (a, big)
      z = Mul (x, x)
    }"""
    lost, kept = spread(case_of(text, x=[1.0], big=[1e6]))
    assert lost > 0.1
    assert kept < 1e-5


@pytest.mark.parametrize(
    ("numbers", "bits"), [([0.5, -3.5], 3), ([1.0, 4.0], np.log2(5)), ([0.1], None), ([1e9], None)]
)
def test_exact_numbers(numbers: list[float], bits: float | None) -> None:
    found = bits_of(np.array(numbers, np.float32))
    if bits is None:
        assert found is None or found > 22
    else:
        assert found == pytest.approx(bits)


def test_a_worker_that_dies_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "worker.py"
    program.write_text(
        "import json, os, signal, sys\n"
        "start, stop, step = map(int, sys.argv[2:5])\n"
        "for seed in range(start, stop, step):\n"
        "    print(json.dumps({'event': 'generate', 'seed': seed}), flush=True)\n"
        "    seed == 1 and os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    print(json.dumps({'event': 'try', 'seed': seed}), flush=True)\n"
        "    seed == 2 and os.kill(os.getpid(), signal.SIGFPE)\n"
        "    done = {'event': 'done', 'seed': seed, 'plans': 1, 'operators': ['Relu']}\n"
        "    print(json.dumps(done), flush=True)\n"
    )
    monkeypatch.setattr(fuzz_plans, "__file__", str(program))
    report = fuzz_plans.sweep(range(4), 1)
    assert report.given_up == 1
    assert list(report.findings) == [2]
    assert "ends the process (-8)" in report.findings[2]
    assert report.text() == "2 graphs, 2 plans, 1 operators: 1 findings"

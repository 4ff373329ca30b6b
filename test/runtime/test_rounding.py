"""ONNX Runtime's rewrites of quantised models: each changes results no further than is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from quantised_cases import BLOCKS, CASES, truth

import tensoropt as to
from tensoropt.runtime.cli.report import to_text
from tensoropt.runtime.session import rounding
from tensoropt.runtime.session.rounding import limit_rounding
from tensoropt.runtime.support.rank_options import EXACT, FAST, MODEL

STEP = 0.2  # of the results that a case quantises


def run(case: Any, limit: str) -> Any:
    model, inputs = case
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    limit_rounding(options, model.SerializeToString(), limit)
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)[0]


def error(case: Any, limit: str) -> float:
    return float(np.abs(run(case, limit) - truth(case)).max())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_exact_results_are_those_of_the_standard(case: Any) -> None:
    np.testing.assert_allclose(run(case, EXACT), truth(case), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_model_s_own_rounding_is_off_by_a_step(case: Any) -> None:
    ends = [made.op_type for made in case[0].graph.node].count("QuantizeLinear") > 1
    assert error(case, MODEL) <= (STEP * 1.01 if ends else 1e-3)


@pytest.mark.parametrize("case", BLOCKS.values(), ids=BLOCKS)
def test_fast_products_round_activations(case: Any) -> None:
    off = error(case, FAST) / float(np.abs(truth(case)).max())
    assert 1e-3 < off < 4 / 255


def test_activations_of_floats_are_not_approximated() -> None:
    """Approximations of GELU and products in bfloat16 are off in ONNX Runtime by default."""
    nodes = [onnx.helper.make_node("Gelu", ["x"], ["g"]),
             onnx.helper.make_node("MatMul", ["g", "w"], ["y"])]  # fmt: skip
    value = onnx.helper.make_tensor_value_info
    rng = np.random.default_rng(0)
    weight = onnx.numpy_helper.from_array(rng.normal(size=(64, 8)).astype(np.float32), "w")
    graph = onnx.helper.make_graph(nodes, "g", [value("x", 1, [32, 64])], [value("y", 1, None)],
                                   [weight])  # fmt: skip
    imports = [onnx.helper.make_opsetid("", 20)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    case = model, {"x": rng.normal(size=(32, 64)).astype(np.float32)}
    for limit in (EXACT, MODEL, FAST):
        assert error(case, limit) < 1e-5


class Recorded:
    """Stands in for the options of a session."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.entries[name] = value


@pytest.mark.parametrize("as_file", [False, True])
def test_weights_are_made_unsigned_where_all_have_zero_points(
    as_file: bool, tmp_path: Path
) -> None:
    wide = "session.x64quantprecision"
    for name, expected in (("integers to floats", True), ("MatMul of INT8 with blocks of 0", False),
                           ("MatMul of INT8 with zero points", True)):  # fmt: skip
        graph: Any = CASES[name][0].SerializeToString()
        if as_file:
            graph = tmp_path / "model.onnx"
            onnx.save(CASES[name][0], graph)
        made = Recorded()
        limit_rounding(made, graph, MODEL)  # type: ignore[arg-type]
        assert (wide in made.entries) is expected
        assert "session.qdq_matmulnbits_accuracy_level" in made.entries
    made = Recorded()
    limit_rounding(made, b"", FAST)  # type: ignore[arg-type]
    assert made.entries == {}


@pytest.mark.parametrize("rounding", [EXACT, MODEL, FAST])
def test_optimizers_that_are_slow_stay_disabled(rounding: str) -> None:
    made = Recorded()
    limit_rounding(made, b"", rounding, disabled=("A", "B"))  # type: ignore[arg-type]
    more = ";DoubleQDQPairsRemover" if rounding == EXACT else ""
    assert made.entries["optimization.disable_specified_optimizers"] == f"A;B{more}"


def test_the_rounding_of_a_job_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "_chosen", [MODEL])
    rounding.use_rounding(FAST)
    made = Recorded()
    limit_rounding(made, b"")  # type: ignore[arg-type]
    assert made.entries == {}


def test_a_check_tells_the_part_of_rewrites(tmp_path: Path) -> None:
    model, inputs = CASES["MatMul of INT4 with blocks of 32"]
    onnx.save(model, tmp_path / "model.onnx")
    plan = to.load(tmp_path / "model.onnx").frontier(devices=2).leanest.compile(tmp_path / "plan")
    fast = plan.check(tmp_path / "model.onnx", inputs=inputs, rounding="fast")
    (output,) = fast.outputs
    assert fast.passed
    assert output.note == "within 4 steps of 8 bits"
    assert output.by_rewrites is not None
    assert 0.5 < output.absolute / output.by_rewrites < 2
    head, row, _ = to_text([fast]).splitlines()
    assert "by rewrites" in head
    assert f"  {output.by_rewrites:.3g} " in row
    (output,) = plan.check(tmp_path / "model.onnx", inputs=inputs).outputs
    assert output.absolute < 1e-4
    assert output.by_rewrites is not None
    assert output.by_rewrites < 1e-4
    exact = plan.check(tmp_path / "model.onnx", inputs=inputs, rounding="exact")
    assert exact.outputs[0].by_rewrites is None
    assert "by rewrites" not in to_text([exact])
    for limit, least, most in (("fast", 1e-2, 1.0), ("model", 0.0, 1e-4)):
        with plan.session(rounding=limit) as session:
            off = np.abs(session.run(inputs)["y"] - truth((model, inputs))).max()
        assert least <= off <= most


def test_an_unknown_rounding_is_refused() -> None:
    with pytest.raises(to.UserError, match="expected 'exact', 'model' or 'fast', got: 'quick'"):
        to.Session("plan", rounding="quick")

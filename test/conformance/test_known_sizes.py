"""Types at known sizes are those of ONNX Runtime's kernels, for each operator of the standard."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from importer.models import model, node, untyped, value
from known_sizes import differences, ill_inferred
from node_tests import collect
from onnx import TensorProto, numpy_helper

from tensoropt.compiler.shapes import shape_rules
from tensoropt.compiler.shapes.inference import infer_types, value_types

FLOAT = TensorProto.FLOAT


def single(
    op_type: str,
    *shapes: list[int],
    opset: int = 20,
    outputs: int = 1,
    constants: dict[int, Any] | None = None,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model of one node, with ``constants`` by position, and its inputs of zeros."""
    feeds = {f"x{at}": np.zeros(shape, np.float32) for at, shape in enumerate(shapes)}
    operands, stored = list(feeds), []
    for at, constant in sorted((constants or {}).items()):
        operands += [""] * (at + 1 - len(operands))
        operands[at] = f"c{at}"
        stored.append(numpy_helper.from_array(np.asarray(constant), f"c{at}"))
    results = [f"y{at}" for at in range(outputs)]
    made = node(op_type, operands, results, **attributes)
    inputs = [value(name, FLOAT, array.shape) for name, array in feeds.items()]
    return model([made], inputs, [*map(untyped, results)], stored, opset=opset), feeds


STFT = {"constants": {1: 16}}
CASES = {
    "stft of a window": single("STFT", [2, 128, 1], constants={1: 16, 2: np.ones(24, np.float32)}),
    "stft of a length": single("STFT", [2, 128, 1], constants={1: 16, 3: 24}),
    "stft of both": single("STFT", [1, 99, 1],
                           constants={1: 7, 2: np.ones(25, np.float32), 3: 25}),
    "stft with two sides": single("STFT", [2, 128, 1], onesided=0,
                                  constants={1: 16, 2: np.ones(25, np.float32)}),
    "stft of complex numbers": single("STFT", [2, 128, 2], onesided=0, constants={1: 16, 3: 32}),
    "normalised groups": single("GroupNormalization", [3, 4, 2, 2], opset=21, num_groups=2,
                                constants={1: np.ones(4, np.float32), 2: np.ones(4, np.float32)}),
    "normalised channels": single("MeanVarianceNormalization", [3, 4, 2, 2]),
    "a negative axis before opset 11": single("Concat", [3, 4], [3, 5], opset=9, axis=-1),
    "a sum of nothing": single("ReduceSum", [0, 3, 4], constants={1: [-1]}),
    "a maximum of nothing": single("ArgMax", [0, 3, 4], axis=-1),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sizes_are_those_of_the_kernel(case: tuple[onnx.ModelProto, dict[str, Any]]) -> None:
    assert ill_inferred(*case) is None
    (output,) = infer_types(case[0]).graph.output
    assert all(dim.HasField("dim_value") for dim in output.type.tensor_type.shape.dim)


def test_a_rank_is_inferred_without_sizes() -> None:
    made = node("HannWindow", ["n"], ["y"])
    proto = model([made], [value("n", TensorProto.INT64, [])], [untyped("y")])
    kind = value_types(infer_types(proto).graph)["y"].tensor_type
    assert kind.elem_type == FLOAT
    assert [dim.HasField("dim_value") for dim in kind.shape.dim] == [False]


def test_a_wrong_rule_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shape_rules.RULES, "STFT", lambda call: [1, 2, 3, 2])
    assert ill_inferred(*CASES["stft of a window"]) == (
        "'y0' is [1, 2, 3, 2] of 1, expected (2, 7, 13, 2) of 1"
    )


def test_every_operator_has_the_types_of_its_kernels() -> None:
    tests = collect()
    assert len(tests) > 1500
    assert list(differences(tests)) == []

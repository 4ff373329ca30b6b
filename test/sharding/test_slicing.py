"""What a Slice takes, against ONNX Runtime: bounds far outside, and steps that go back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper
from training.vjp import session_of

from tensoropt.compiler.sharding.rule.slicing import slice_indices

FAR = (-(2**63), -(2**31), -100, 100, 2**31 - 1, 2**31, 2**63 - 2, 2**63 - 1)
BOUNDS = (*FAR, *range(-5, 6))


@pytest.mark.parametrize("size", [0, 1, 2, 4])
def test_every_bound_and_step(size: int) -> None:
    names = ["x", "start", "end", "axis", "step"]
    given = [helper.make_tensor_value_info(n, TensorProto.INT64, [None]) for n in names]
    result = [helper.make_tensor_value_info("y", TensorProto.INT64, [None])]
    graph = helper.make_graph([helper.make_node("Slice", names, ["y"])], "slice", given, result)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = session_of(model.SerializeToString())
    for start, end, step in itertools.product(BOUNDS, BOUNDS, (-(2**63), -3, -2, -1, 1, 2, 3)):
        held = {"start": start, "end": end, "axis": 0, "step": step}
        feeds = {name: np.array([value]) for name, value in held.items()}
        (got,) = session.run(None, {"x": np.arange(size), **feeds})
        assert got.tolist() == list(slice_indices(size, start, end, step)), (start, end, step)

"""Graphs that random search found something wrong with, as small as they could be made."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from fuzz.graphs import Case
from fuzz.plans import Choice, try_plans
from onnx import helper, parser

MESHES = [(2,), (4,), (2, 2), (3,), (8,)]
SEEDS = range(4)
SIZE = 4
"""Of symbolic dimensions."""
MANY_PLANS = {"einsum_of_nothing", "squeeze_of_all_that_is_one"}
"""Graphs that take seconds."""

GRAPHS = {
    "statistics_whose_shape_is_not_known": """<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,5,12] x) => (float[?,?,?] z) <float[12] w = {1,2,3,4,5,6,1,2,3,4,5,6}> {
          y, z = SimplifiedLayerNormalization <axis = -1> (x, w)
        }""",
    "einsum_of_nothing": """<ir_version: 10, opset_import: ["" : 14]>
        g (float[0,6] x, float[6,0,8] y) => (float[?] z, float[?,?,?] u, float v) {
          v = Einsum <equation = "ij,ij->"> (x, x)
          z = Einsum <equation = "bi,bi->b"> (x, x)
          u = Einsum <equation = "...ij,...kj->...ik"> (y, y)
        }""",
    "squeeze_of_all_that_is_one": """<ir_version: 10, opset_import: ["" : 18]>
        g (float[4,1,8] x) => (float[?,?] y, float[?,?] z) <int64[0] none = {}> {
          y = Squeeze (x, none)
          z = CumSum (y, one)
          one = Constant <value = int64 {1}> ()
        }""",
    "loss_of_nothing": """<ir_version: 10, opset_import: ["" : 22]>
        g (float[8,8,0,5] x) => (float y) <int64[8,0,5] labels = {}> {
          y = NegativeLogLikelihoodLoss <reduction = "mean"> (x, labels)
        }""",
    "no_channels": """<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,0,8] x) => (float[1,0,8] y) <float[0] none = {}> {
          y = InstanceNormalization (x, none, none)
        }""",
    "a_mean_of_nothing": """<ir_version: 10, opset_import: ["" : 18]>
        g (float[0,2,0,4] x) => (float[?,?,?,?] y) <float[2] w = {1, 2}> {
          y = InstanceNormalization (x, w, w)
        }""",
    "squeezed_after_a_pool_that_inference_has_wrong": """<ir_version: 10, opset_import: ["" : 18]>
        g (float[5,6,3,5] x) => (float[?,?,?] y) {
          h = MaxPool <ceil_mode = 1, dilations = [2, 2], kernel_shape = [2, 2],
                       pads = [0, 0, 1, 0], strides = [3, 2]> (x)
          y = Squeeze (h)
        }""",
    "joined_after_a_pool_that_inference_has_wrong": """<ir_version: 10, opset_import: ["" : 18]>
        g (float[4,2,N,8] x) => (float[?,?,?,?] y) <float[2,2,2,8] w = {1, 2, 3, 4, 5, 6, 7, 8,
            1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8,
            1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8,
            1, 2, 3, 4, 5, 6, 7, 8}> {
          h = AveragePool <ceil_mode = 1, kernel_shape = [3, 1], pads = [0, 0, 2, 0],
                           strides = [2, 1]> (x)
          y = Concat <axis = 0> (h, w)
        }""",
    "a_size_that_only_the_result_tells": """<ir_version: 10,
        opset_import: ["" : 20, "com.microsoft" : 1]>
        g (float[5,N,2] x) => (float[5,4,2] y) <float[2] w = {1, 2}> {
          h = Abs (x)
          y = com.microsoft.SkipLayerNormalization (x, h, w, w)
        }""",
    "places_of_the_largest_of_nothing": """<ir_version: 10, opset_import: ["" : 17]>
        g (float[0,2,3,3] x) => (float[?,?,?,?] y, int64[?,?,?,?] z) {
          y, z = MaxPool <kernel_shape = [2, 3]> (x)
        }""",
    "division_by_zero": """<ir_version: 10, opset_import: ["" : 20]>
        g (float[8] x) => (float[8] y, float[8] z)
        <float[1] one = {1}, float[8] w = {1,2,0,4,5,6,0,8}> {
          zero = Floor (nearly)
          nearly = Div (one, four)
          four = Constant <value = float {4.0}> ()
          y = Div (one, zero)
          z = Div (x, w)
        }""",
}


def random_inputs(model: onnx.ModelProto) -> dict[str, npt.NDArray[Any]]:
    """Return values for the inputs of a model: floats are normal, integers small."""
    rng, feeds = np.random.default_rng(0), {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value if not dim.dim_param else SIZE for dim in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        drawn = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 4, shape)
        feeds[value.name] = np.asarray(drawn).astype(dtype)
    return feeds


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in MANY_PLANS else pytest.mark.quick) for name in GRAPHS],
)
def test_every_plan_is_right(name: str) -> None:
    model = parser.parse_model(GRAPHS[name])
    case = Case(0, model, random_inputs(model))
    plans = [Choice(mesh, seed) for mesh in MESHES for seed in SEEDS]
    found = try_plans(case, plans)
    assert found is None, found

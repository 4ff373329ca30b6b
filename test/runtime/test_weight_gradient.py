"""Gradients of convolutions' weights run on our kernel, with the results of the products."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs.trained import TRAINED
from onnx import TensorProto, helper
from train_plans import Recipe, one_device, write_plan
from training_data import batch_size, draw

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session import weight_gradient
from tensoropt.runtime.session.session import training_session
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held
from tensoropt.runtime.training.step import TrainingStep

FLOAT = TensorProto.FLOAT


def model(x: Any, dy: Any, **held: Any) -> onnx.ModelProto:
    node = helper.make_node(
        "ConvWeightGradient", ["x", "dy"], ["dw"], name="one", domain="tensoropt", **held
    )
    ends = [helper.make_tensor_value_info(n, FLOAT, shape) for n, shape in (("x", x), ("dy", dy))]
    result = helper.make_tensor_value_info("dw", FLOAT, None)
    graph = helper.make_graph([node], "g", ends, [result])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("tensoropt", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def expected(x: Array, dy: Array, held: dict[str, list[int]]) -> Array:
    """The sums in float64, one element of the window after the other."""
    down, across = held["sizes"]
    steps, spread, counts = held["strides"], held["dilations"], dy.shape[2:]
    wide = [(p, p + n * s + t * d) for p, n, s, t, d in zip(
        held["pads"], counts, steps, held["sizes"], spread, strict=True)]  # fmt: skip
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *wide])
    found = np.empty((dy.shape[1], x.shape[1], down, across))
    for i, j in itertools.product(range(down), range(across)):
        r, q = i * spread[0], j * spread[1]
        ends = [first + n * s for first, n, s in zip((r, q), counts, steps, strict=True)]
        met = padded[:, :, r : ends[0] : steps[0], q : ends[1] : steps[1]]
        found[:, :, i, j] = np.einsum("nmrq,ncrq->mc", dy, met)
    return found


def case(strides: Any, dilations: Any, pads: Any, sizes: Any) -> dict[str, list[int]]:
    names = ("strides", "dilations", "pads", "sizes")
    return dict(zip(names, map(list, (strides, dilations, pads, sizes)), strict=True))


PLAIN = case((1, 1), (1, 1), (1, 1), (3, 3))
CASES = {
    "channels of one vector": ((3, 16, 20, 21), (3, 8, 20, 21), PLAIN),
    "odd channels": ((2, 5, 7, 6), (2, 11, 7, 6), PLAIN),
    "several groups of images": ((5, 3, 30, 20), (5, 9, 30, 20), PLAIN),
    "many channels": ((3, 70, 2, 2), (3, 65, 2, 2), PLAIN),
    "strides": ((2, 6, 9, 12), (2, 4, 5, 4), case((2, 3), (1, 1), (1, 0), (3, 2))),
    "one tap": ((2, 34, 5, 6), (2, 7, 5, 6), case((1, 1), (1, 1), (0, 0), (1, 1))),
    "one tap, strides": ((2, 9, 8, 7), (2, 10, 4, 3), case((2, 3), (1, 1), (0, 0), (1, 1))),
    "one tap, padded": ((2, 3, 4, 4), (2, 3, 6, 3), case((1, 2), (1, 1), (1, 1), (1, 1))),
    "a row of taps": ((2, 3, 4, 9), (2, 3, 4, 5), case((1, 1), (1, 1), (0, 0), (1, 5))),
    "dilated": ((2, 4, 12, 11), (2, 5, 8, 9), case((1, 1), (2, 3), (0, 2), (3, 3))),
    "padding beyond the window": ((1, 2, 3, 3), (1, 2, 8, 8), case((1, 1), (1, 1), (3, 3), (2, 2))),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_sum_over_windows(name: str, tmp_path: Path) -> None:
    x_shape, dy_shape, held = CASES[name]
    onnx.save(model(x_shape, dy_shape, **held), tmp_path / "m.onnx")
    session, rng = training_session(tmp_path / "m.onnx", 2), np.random.default_rng(0)
    x, dy = (rng.standard_normal(shape, np.float32) for shape in (x_shape, dy_shape))
    session.feed("x", x)
    session.feed("dy", dy)
    session.run()
    wanted = expected(x, dy, held)
    np.testing.assert_allclose(session.fetch()["dw"], wanted, rtol=1e-4, atol=1e-4)


def test_images_must_be_as_many(tmp_path: Path) -> None:
    onnx.save(model((2, 3, 4, 4), (3, 3, 4, 4), **PLAIN), tmp_path / "m.onnx")
    session = training_session(tmp_path / "m.onnx", 1)
    session.feed("x", np.zeros((2, 3, 4, 4), np.float32))
    session.feed("dy", np.zeros((3, 3, 4, 4), np.float32))
    with pytest.raises(UserError, match="as many images as gradients") as raised:
        session.run()
    assert "[2, 3, 4, 4] and [3, 3, 4, 4]" in str(raised.value)


def test_padding_of_several_groups_is_left_alone() -> None:
    """A product per group, of an image that has a dimension of groups."""
    text = """
        <ir_version: 10, opset_import: ["" : 20]>
        g (float[2, 2, 2, 4, 8] x, float[4, 3, 12] dy) => (float[6, 8, 1, 1] dw)
        <int64[10] ends = {0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, float zero = {0.0},
         int64[3] rows = {4, 12, 8}, int64[4] groups = {2, 2, 3, 8}, int64[1] images = {0},
         int64[4] weights = {6, 8, 1, 1}>
        {
            padded = Pad (x, ends, zero)
            met = Reshape (padded, rows)
            product = MatMul (dy, met)
            each = Reshape (product, groups)
            sum = ReduceSum (each, images)
            dw = Reshape (sum, weights)
        }"""
    graph = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    assert not weight_gradient.use_own_weight_gradients(graph)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> TrainingPlan:
    """A step of a small network, with gradients in every form."""
    folder = tmp_path_factory.mktemp("cnn")
    path = TRAINED["cnn"].build("cnn").save(folder, seed=0)
    np.savez(folder / "data.npz", **draw(path, batch_size(path)))
    written = write_plan(path, one_device(path, Recipe("momentum", 0.01)), folder / "plan")
    return TrainingPlan.from_plan(Plan.load(str(written)))


def gradients(plan: TrainingPlan) -> dict[str, Array]:
    state = Held(plan, 0, CPU)
    step = TrainingStep(plan, state, 1)
    state.load(None)
    with np.load(plan.folder.parent.parent / "data.npz") as arrays:
        step.feed(dict(arrays))
    step.start()
    step.forward_backward()
    return {name: np.array(array.get()) for name, array in state.gradients.items()}


def test_all_of_a_step_are_found(plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = onnx.load(plan.plan.graph(0), load_external_data=False)
    before = [node for node in graph.graph.node if node.op_type == "Conv"]
    monkeypatch.setattr(weight_gradient._Graph, "_pays", lambda *_: True)
    assert weight_gradient.use_own_weight_gradients(graph)
    own = [node for node in graph.graph.node if node.op_type == "ConvWeightGradient"]
    assert len(own) == sum(".grad" not in node.name for node in before) > 5
    assert not any(
        node.op_type == "Slice" and "conv.grad" in node.name for node in graph.graph.node
    )
    onnx.checker.check_model(graph)

    found = gradients(plan)
    monkeypatch.setattr(weight_gradient._Graph, "_pays", lambda *_: False)
    assert not weight_gradient.use_own_weight_gradients(graph)
    wanted = gradients(plan)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        largest = np.abs(array).max()
        np.testing.assert_allclose(found[name], array, atol=1e-5 * largest, err_msg=name)

"""Convolutions of training steps run on our kernels, with the results of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.session.convolution import use_own_convolutions
from tensoropt.runtime.session.session import made_session, training_session
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

FLOAT = TensorProto.FLOAT


def model(kind: str, x: tuple[int, ...], w: tuple[int, ...], **held: Any) -> onnx.ModelProto:
    """Return one node with typed ends."""
    node = helper.make_node(kind, ["x", "w"], ["y"], name="one", **held)
    ends = [helper.make_tensor_value_info(n, FLOAT, shape) for n, shape in (("x", x), ("w", w))]
    result = helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph([node], "g", ends, [result])
    imports = [helper.make_opsetid("", 20)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def drawn(given: onnx.ModelProto) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in given.graph.input
    }
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def check(given: onnx.ModelProto, folder: Path) -> None:
    arrays = drawn(given)
    onnx.save(given, folder / "m.onnx")
    plain, own = (
        made_session(given.SerializeToString(), CPU),
        training_session(folder / "m.onnx", 2),
    )
    for session in (plain, own):
        for name, array in arrays.items():
            session.feed(name, array)
        session.run()
    wanted, found = plain.fetch()["y"], own.fetch()["y"]
    assert use_own_convolutions(given, given)
    assert given.graph.node[0].domain == "tensoropt"
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


DENSE = {
    "planes of several parts": ((2, 5, 70, 40), (7, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "small images together": ((9, 8, 6, 5), (13, 8, 3, 2), {"pads": [1, 0, 1, 1]}),
    "no padding": ((1, 3, 33, 20), (16, 3, 5, 4), {}),
    "dilated": ((3, 4, 20, 30), (6, 4, 3, 3), {"pads": [2, 4, 2, 4], "dilations": [2, 4]}),
    "padding wider than the window": ((1, 2, 3, 18), (4, 2, 2, 2), {"pads": [3, 2, 3, 2]}),
    "many channels": ((3, 100, 2, 2), (65, 100, 3, 3), {"pads": [1, 1, 1, 1]}),
    "few windows, strides": ((4, 40, 5, 4), (50, 40, 3, 3), {"pads": [1] * 4, "strides": [3, 2]}),
    "one tap, strides": ((5, 48, 4, 4), (33, 48, 1, 1), {"strides": [2, 2]}),
}


@pytest.mark.parametrize("case", DENSE)
def test_it_is_that_of_onnx_runtime(case: str, tmp_path: Path) -> None:
    x, w, held = DENSE[case]
    check(model("Conv", x, w, **held), tmp_path)


BACK = {
    "planes": ((2, 5, 40, 40), (5, 7, 3, 3), {"pads": [1, 1, 1, 1]}),
    "strides": ((3, 40, 4, 3), (40, 9, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
    "output padding": (
        (2, 34, 4, 4),
        (34, 5, 3, 3),
        {"pads": [1] * 4, "strides": [2, 2], "output_padding": [1, 1]},
    ),
    "strides beyond the window": (
        (2, 40, 3, 4),
        (40, 3, 1, 1),
        {"strides": [2, 3], "output_padding": [1, 2]},
    ),
    "dilated": ((2, 33, 3, 4), (33, 4, 3, 2), {"strides": [2, 3], "dilations": [3, 2]}),
}


@pytest.mark.parametrize("case", BACK)
def test_so_is_the_transpose(case: str, tmp_path: Path) -> None:
    x, w, held = BACK[case]
    check(model("ConvTranspose", x, w, **held), tmp_path)


LEFT = {
    "wide": model("Conv", (2, 64, 8, 8), (64, 64, 3, 3)),
    "one tap": model("Conv", (2, 8, 8, 8), (8, 8, 1, 1)),
    "groups": model("Conv", (2, 8, 8, 8), (8, 1, 3, 3), group=8),
    "by the sizes": model("Conv", (2, 8, 8, 8), (8, 8, 3, 3), auto_pad="SAME_UPPER"),
    "three dimensions": model("Conv", (2, 8, 8, 8, 8), (8, 8, 3, 3, 3)),
}


@pytest.mark.parametrize("case", LEFT)
def test_others_stay_with_onnx_runtime(case: str) -> None:
    assert not use_own_convolutions(LEFT[case], LEFT[case])
    assert not LEFT[case].graph.node[0].domain


WRONG = {
    "strides must be two numbers of at least 1, got: [0, 1]": {"strides": [0, 1]},
    "pads must be two numbers of at least 0, got: [1]": {"pads": [1]},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_attributes_are_refused(message: str, tmp_path: Path) -> None:
    given = model("Conv", (2, 8, 8, 8), (8, 8, 3, 3))
    assert use_own_convolutions(given, given)
    for attribute in given.graph.node[0].attribute:
        if attribute.name in WRONG[message]:
            attribute.ints[:] = WRONG[message][attribute.name]
    onnx.save(given, tmp_path / "m.onnx")
    with pytest.raises(UserError) as raised:
        training_session(tmp_path / "m.onnx", 1)
    assert message in str(raised.value)


def test_channels_must_be_the_same(tmp_path: Path) -> None:
    given = model("Conv", (2, 8, 8, 8), (8, 8, 3, 3))
    use_own_convolutions(given, given)
    given.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 7
    onnx.save(given, tmp_path / "m.onnx")
    session = training_session(tmp_path / "m.onnx", 1)
    for name, array in drawn(given).items():
        session.feed(name, array)
    with pytest.raises(UserError, match="weights of as many channels") as raised:
        session.run()
    assert "Conv node 'one'" in str(raised.value)
    assert "[2, 8, 8, 8] and [8, 7, 3, 3]" in str(raised.value)

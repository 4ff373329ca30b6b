"""Dropout: its mask, which depends on the seed alone, and the gradient through it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from training.flow import flow
from training.harness import Vjp, normal

SHAPE = (8, 96, 64)
DROPPED = 0.1


def _model(
    shape: tuple[int, ...] = SHAPE,
    ratio: float | None = DROPPED,
    *,
    count: int = 1,
    kind: int = TensorProto.FLOAT,
    given: bool = False,
    mask: bool = False,
) -> onnx.ModelProto:
    """Return ``count`` dropouts of one input; with ``given`` the ratio is an input, too."""
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    nodes = []
    if given:
        inputs.append(helper.make_tensor_value_info("ratio", TensorProto.FLOAT, ()))
    elif ratio is not None:
        nodes.append(helper.make_node("Constant", [], ["ratio"], value_float=ratio))
    for i in range(count):
        operands = ["x", "ratio"] if given or ratio is not None else ["x"]
        results = [f"y{i}", f"m{i}"] if mask else [f"y{i}"]
        nodes.append(helper.make_node("Dropout", operands, results, name=f"drop{i}"))
    outputs = [helper.make_tensor_value_info(f"y{i}", kind, shape) for i in range(count)]
    if mask:
        outputs.append(helper.make_tensor_value_info("m0", TensorProto.BOOL, shape))
    graph = helper.make_graph(nodes, "dropout", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _ones(shape: tuple[int, ...] = SHAPE) -> Any:
    return np.ones(shape, np.float32)


def _kept(vjp: Vjp, seed: int = 0, shape: tuple[int, ...] = SHAPE, count: int = 1) -> Any:
    """Return what is kept, one tensor of booleans per dropout."""
    feeds = {**vjp.feeds({"x": _ones(shape)}, {f"y{i}": _ones(shape) for i in range(count)})}
    feeds["seed"] = np.array(seed, np.int64)
    return [held > 0 for held in vjp.session.run([f"y{i}" for i in range(count)], feeds)]


def _deviations(found: int, expected: float, count: int) -> float:
    """Return by how many standard deviations ``found`` of ``count`` differs from its mean."""
    return float((found - expected * count) / np.sqrt(count * expected * (1 - expected)))


def _agreement(a: Any, b: Any) -> float:
    """Return how far two masks are from being independent, in standard deviations."""
    both = 1 - 2 * DROPPED * (1 - DROPPED)
    return _deviations(int((a == b).sum()), both, a.size)


@pytest.mark.parametrize("shape", [SHAPE, (64, 768), (2, 3, 64, 64), (1, 1, 1, 5000), (40000,)])
def test_as_many_are_dropped_as_the_ratio_says(shape: tuple[int, ...]) -> None:
    vjp = Vjp(_model(shape))
    for seed in (0, 1, 2, -1, 2**40, 2**63 - 1):
        [kept] = _kept(vjp, seed, shape)
        assert abs(_deviations(int(kept.sum()), 1 - DROPPED, kept.size)) < 4


def test_what_is_kept_is_scaled_and_so_is_its_gradient() -> None:
    vjp, x, dy = Vjp(_model()), normal(*SHAPE, dtype=np.float32), normal(*SHAPE, dtype=np.float32)
    run = vjp.run({"x": x}, {"y0": dy})
    mask = run.outputs["y0"] != 0
    np.testing.assert_allclose(run.outputs["y0"], np.where(mask, x / (1 - DROPPED), 0), rtol=1e-6)
    np.testing.assert_allclose(run.gradients["x"], np.where(mask, dy / (1 - DROPPED), 0), rtol=1e-6)


def test_neighbours_are_independent() -> None:
    [kept] = _kept(Vjp(_model()))
    for dim, step in itertools.product(range(3), (1, 2, 3)):
        rows = np.moveaxis(kept, dim, 0)
        assert abs(_agreement(rows[:-step], rows[step:])) < 4


def test_rows_and_columns_are_as_even_as_chance() -> None:
    """Their counts vary as those of independent elements do: neither more nor less."""
    [kept] = _kept(Vjp(_model()))
    for dim, size in enumerate(SHAPE):
        counts = np.moveaxis(kept, dim, 0).reshape(size, -1).sum(1)
        each = kept.size // size
        spread = ((counts - each * (1 - DROPPED)) ** 2).sum() / (each * DROPPED * (1 - DROPPED))
        assert abs(spread - size) / np.sqrt(2 * size) < 4


def test_corners_of_rectangles_are_independent() -> None:
    """Four keys make four elements: the last must not follow from the other three."""
    [kept] = _kept(Vjp(_model((512, 512), 0.5)), shape=(512, 512))
    corners = kept[::2, ::2] ^ kept[1::2, ::2] ^ kept[::2, 1::2] ^ kept[1::2, 1::2]
    assert abs(_deviations(int(corners.sum()), 0.5, corners.size)) < 4


def test_runs_of_elements_and_of_steps_are_all_as_likely() -> None:
    vjp = Vjp(_model((128, 256), 0.5))
    steps = np.stack([_kept(vjp, seed, (128, 256))[0].reshape(-1) for seed in range(8)])
    runs = steps[0].reshape(-1, 8)
    for held in (steps.T, runs):
        counts = np.bincount(held @ (1 << np.arange(8)), minlength=256)
        expected = len(held) / 256
        spread = ((counts - expected) ** 2).sum() / expected
        assert abs(spread - 255) / np.sqrt(2 * 255) < 4


def test_steps_and_dropouts_are_independent() -> None:
    vjp = Vjp(_model(count=3))
    masks = [mask for seed in (0, 1, 2, 1000) for mask in _kept(vjp, seed, count=3)]
    for one, other in itertools.combinations(masks, 2):
        assert abs(_agreement(one, other)) < 4.5


def test_a_seed_gives_the_same_mask_again() -> None:
    [one], [other] = (_kept(Vjp(_model()), 5) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_every_dimension_can_be_split() -> None:
    vjp = Vjp(_model())
    for side in ("S(0)", "S(1)", "S(2)"):
        found = flow(vjp, {"x": side, "d_y0": side})
        assert side in found["y0"]
        assert side in found["g_x"]


def test_no_literal_is_longer_than_a_dimension() -> None:
    assert sorted(held.size for held in _literals(Vjp(_model())))[-3:] == sorted(SHAPE)


def _literals(vjp: Vjp) -> list[Any]:
    from tensoropt.compiler.pipeline.driver import new_context, parse_text
    from tensoropt.dialects import onnx as views

    with new_context():
        module = parse_text(vjp.text)
        block = views.function(module).regions[0].blocks[0]
        held = [views.constant_value(op.results[0]) for op in block if op.name == views.CONSTANT]
    return [array for array in held if array is not None]


def test_a_ratio_of_the_graph() -> None:
    vjp, fixed = Vjp(_model(given=True), wanted=["x"]), Vjp(_model())
    ratio = np.array(DROPPED, np.float32)
    feeds = {"x": _ones(), "ratio": ratio}
    run, same = vjp.run(feeds, {"y0": _ones()}), fixed.run({"x": _ones()}, {"y0": _ones()})
    assert (run.outputs["y0"] != same.outputs["y0"]).mean() < 1e-3
    np.testing.assert_array_equal(run.outputs["y0"], run.gradients["x"])
    for all_or_none in (0.0, 1.0):
        feeds["ratio"] = np.array(all_or_none, np.float32)
        kept = vjp.run(feeds, {"y0": _ones()}).outputs["y0"]
        np.testing.assert_array_equal(kept, _ones() * (1 - all_or_none))


@pytest.mark.parametrize("ratio", [0.0, 1.0, None])
def test_special_ratios(ratio: float | None) -> None:
    run = Vjp(_model(ratio=ratio)).run({"x": _ones()}, {"y0": _ones()})
    np.testing.assert_array_equal(run.outputs["y0"], run.gradients["x"])
    expected = 0.5 if ratio is None else 1 - ratio
    kept = run.outputs["y0"] > 0
    assert abs(kept.mean() - expected) < (0.02 if ratio is None else 1e-9)
    assert run.outputs["y0"][kept].max(initial=0) == (2 if ratio is None else 1 - (ratio or 0))


@pytest.mark.parametrize("ratio", [0.0, DROPPED])
def test_the_mask_is_a_result(ratio: float) -> None:
    run = Vjp(_model(ratio=ratio, mask=True)).run({"x": _ones()}, {"y0": _ones()})
    np.testing.assert_array_equal(run.outputs["m0"], run.outputs["y0"] > 0)


def test_narrow_floats() -> None:
    vjp, x = Vjp(_model(kind=TensorProto.FLOAT16)), _ones().astype(np.float16)
    run = vjp.run({"x": x}, {"y0": x})
    assert set(np.unique(run.outputs["y0"])) == {0, np.float16(1 / (1 - DROPPED))}

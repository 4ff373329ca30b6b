"""Arithmetic element by element runs as few nodes of our own, with the results of ONNX Runtime."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.session.elementwise import fuse_chains, fuse_elementwise
from tensoropt.runtime.session.session import RankSession, made_session, training_session
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

FLOAT = TensorProto.FLOAT
NARROW = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def node(kind: str, *names: str, **held: object) -> onnx.NodeProto:
    return helper.make_node(kind, names[:-1], names[-1:], name=names[-1], **held)


def typed(name: str, shape: Sequence[int], kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    scalars = [numpy_helper.from_array(np.array(0.9, np.float32), "beta")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, scalars)
    imports = [helper.make_opsetid("", 20)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=imports, ir_version=10)
    )


def momentum(number: int, shape: Sequence[int]) -> tuple[list[onnx.NodeProto], list[str]]:
    """Return the update of a parameter with momentum by the root of its square, and names."""
    w, g, v = (f"{name}{number}" for name in "wgv")
    nodes = [
        node("Mul", v, "beta", f"{v}.kept"),
        node("Add", f"{v}.kept", g, f"{v}.new"),
        node("Mul", f"{v}.new", f"{v}.new", f"{v}.square"),
        node("Sqrt", f"{v}.square", f"{v}.root"),
        node("Div", "rate", f"{v}.root", f"{v}.change"),
        node("Sub", w, f"{v}.change", f"{w}.new"),
    ]
    return nodes, [w, g, v]


def updates(shapes: Sequence[Sequence[int]]) -> onnx.ModelProto:
    nodes, inputs, outputs = [], [typed("rate", ())], []
    for number, shape in enumerate(shapes):
        made, names = momentum(number, shape)
        nodes += made
        inputs += [typed(name, shape) for name in names]
        outputs += [typed(f"{name}.new", shape) for name in (names[0], names[2])]
    return model(nodes, inputs, outputs)


def kinds(given: onnx.ModelProto) -> list[str]:
    return [one.op_type for one in given.graph.node]


def drawn(given: onnx.ModelProto) -> dict[str, Array]:
    rng, found = np.random.default_rng(0), {}
    for value in given.graph.input:
        held = value.type.tensor_type
        shape = [dim.dim_value for dim in held.shape.dim]
        kind = helper.tensor_dtype_to_np_dtype(held.elem_type)
        found[value.name] = rng.standard_normal(shape).astype(kind)
    return found


def run(given: RankSession, arrays: dict[str, Array]) -> dict[str, Array]:
    for name, array in arrays.items():
        given.feed(name, array)
    given.run()
    return given.fetch()


def check(given: onnx.ModelProto, folder: Path, wanted: Sequence[str]) -> None:
    """Expect the kinds of nodes once it is fused, and the results of the graph as it is."""
    onnx.save(given, folder / "m.onnx")
    arrays = drawn(given)
    expected = run(made_session(given.SerializeToString(), CPU), arrays)
    optimised = folder / "optimised.onnx"
    found = run(training_session(folder / "m.onnx", 2, optimised, fused=True), arrays)
    fuse_elementwise(given)
    assert kinds(given) == list(wanted)
    assert "Elementwise" in kinds(onnx.load(optimised))
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_equal_updates_are_one_node_whatever_their_sizes(tmp_path: Path) -> None:
    check(updates([(3,), (7, 11), (1,), (300, 257), (0, 4), (70_000,)]), tmp_path, ["Elementwise"])


def test_what_is_joined_is_what_one_step_reads(tmp_path: Path) -> None:
    """Products and roots on either side, some read twice, by two steps or returned as well."""
    nodes = [
        node("Mul", "x", "y", "product"),
        node("Mul", "z", "beta", "scaled"),
        node("Sub", "product", "scaled", "difference"),
        node("Mul", "x", "x", "square"),
        node("Sqrt", "square", "root"),
        node("Div", "difference", "root", "ratio"),
        node("Mul", "y", "z", "twice"),
        node("Add", "twice", "twice", "sum"),
        node("Mul", "z", "z", "two"),
        node("Sub", "two", "ratio", "left"),
        node("Div", "ratio", "two", "right"),
        node("Mul", "sum", "z", "returned"),
        node("Mul", "returned", "rate", "later"),
        node("Sqrt", "two", "size"),
        node("Mul", "size", "later", "last"),
    ]
    shape = (5, 300)
    inputs = [typed("rate", ()), *(typed(name, shape) for name in "xyz")]
    names = ("left", "right", "returned", "last")
    check(model(nodes, inputs, [typed(name, shape) for name in names]), tmp_path, ["Elementwise"])


def reading(
    given: onnx.ModelProto, tmp_path: Path
) -> tuple[RankSession, dict[str, Any], dict[str, Array]]:
    """Return a session that reads drawn arrays, these, and what ONNX Runtime makes of them."""
    onnx.save(given, tmp_path / "m.onnx")
    arrays = drawn(given)
    expected = run(made_session(given.SerializeToString(), CPU), arrays)
    held = {name: CPU.place(array.copy()) for name, array in arrays.items()}
    session = training_session(tmp_path / "m.onnx", 1, fused=True)
    for name, array in held.items():
        session.read(name, array)
    return session, held, expected


def test_state_is_written_over_itself(tmp_path: Path) -> None:
    given = updates([(5, 300)])
    session, held, expected = reading(given, tmp_path)
    for name in ("w0", "v0"):
        session.write(f"{name}.new", held[name])
    session.run()
    for name in ("w0", "v0"):
        np.testing.assert_allclose(held[name].get(), expected[f"{name}.new"], rtol=1e-6)


@pytest.mark.parametrize("places", [("x", "y"), ("y", "x"), ("x", "z"), ("z", "y")])
def test_results_lie_where_later_steps_read(places: tuple[str, str], tmp_path: Path) -> None:
    """Both x and y are read after the first result is made, z before it."""
    nodes = [
        node("Mul", "z", "y", "p"),
        node("Add", "p", "x", "first"),
        node("Mul", "first", "y", "q"),
        node("Sub", "q", "x", "second"),
    ]
    shape = (3, 300)
    inputs, names = [typed(name, shape) for name in "xyz"], ("first", "second")
    given = model(nodes, inputs, [typed(name, shape) for name in names])
    session, held, expected = reading(given, tmp_path)
    for name, place in zip(names, places, strict=True):
        session.write(name, held[place])
    session.run()
    for name, place in zip(names, places, strict=True):
        np.testing.assert_allclose(held[place].get(), expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", NARROW)
def test_narrow_arrays_are_computed_with_in_float32(kind: str, tmp_path: Path) -> None:
    nodes = [
        node("Cast", "w", "wide", to=FLOAT),
        node("Mul", "wide", "rate", "less"),
        node("Sub", "wide", "less", "new"),
        node("Cast", "new", "w.new", to=NARROW[kind]),
    ]
    inputs = [typed("w", (9, 41), NARROW[kind]), typed("rate", ())]
    given = model(nodes, inputs, [typed("w.new", (9, 41), NARROW[kind])])
    onnx.save(given, tmp_path / "m.onnx")
    element = np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)
    w = np.random.default_rng(0).standard_normal((9, 41)).astype(element)
    made = training_session(tmp_path / "m.onnx", 1, fused=True)
    found = run(made, {"w": w, "rate": np.array(0.25, np.float32)})["w.new"]
    np.testing.assert_array_equal(found, (w.astype(np.float32) * np.float32(0.75)).astype(element))


def test_what_another_node_lies_between_is_two(tmp_path: Path) -> None:
    nodes = [
        node("Mul", "x", "beta", "a"),
        node("MatMul", "a", "a", "product"),
        node("Add", "product", "a", "y"),
        node("Sqrt", "rate", "root"),
        node("Mul", "z", "root", "b"),
    ]
    inputs = [typed("x", (4, 4)), typed("z", (4, 4)), typed("rate", ())]
    given = model(nodes, inputs, [typed("y", (4, 4)), typed("b", (4, 4))])
    check(given, tmp_path, ["Elementwise", "MatMul", "Elementwise", "Sqrt", "Elementwise"])


def test_updates_stay_beside_the_gathers_that_they_hide() -> None:
    """A gather that began before an update goes on beside it, not behind it."""
    given = updates([(4, 4)] * 4)
    size = len(given.graph.node) // 4
    first, *later = [given.graph.node[n : n + size] for n in range(0, 4 * size, size)]
    starts = helper.make_node("AllGatherStart", ["t", "w0.new"], ["u", "handle", "y"])
    waits = helper.make_node("AllGatherWait", ["handle", "y", "w0.new"], ["whole"])
    ordered = [*first, starts, *later[0], *later[1], waits, *later[2]]
    del given.graph.node[:]
    given.graph.node.extend(ordered)
    fuse_elementwise(given)
    assert kinds(given) == [
        "Elementwise",
        "AllGatherStart",
        "Elementwise",
        "AllGatherWait",
        "Elementwise",
    ]


def test_what_rounds_or_broadcasts_or_is_unknown_stays() -> None:
    nodes = [
        node("Cast", "x", "narrow", to=NARROW["float16"]),
        node("Cast", "narrow", "wide", to=FLOAT),
        node("Mul", "x", "row", "scaled"),
        node("Mul", "rate", "beta", "number"),
        node("Exp", "x", "power"),
    ]
    inputs = [typed("x", (2, 3)), typed("row", (3,)), typed("rate", ())]
    shapes = {"wide": (2, 3), "scaled": (2, 3), "number": (), "power": (2, 3)}
    given = model(nodes, inputs, [typed(name, shape) for name, shape in shapes.items()])
    fuse_elementwise(given)
    assert kinds(given) == ["Cast", "Cast", "Mul", "Mul", "Exp"]


def elementwise(**changed: object) -> onnx.ModelProto:
    held = {
        "scalars": 1,
        "reads": [FLOAT],
        "broadcast": [0],
        "program": [2, 0, 1],
        "results": [2],
        "writes": [FLOAT],
        **changed,
    }
    made = helper.make_node(
        "Elementwise", ["s", "x"], ["y"], name="one", domain="tensoropt", **held
    )
    graph = helper.make_graph(
        [made], "g", [typed("s", ()), typed("x", (2, 3))], [typed("y", (2, 3))]
    )
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("tensoropt", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


WRONG = {
    "scalars must be 0 or more, got: -1": {"scalars": -1},
    "reads must be float32, float16 or bfloat16, got: ONNX element type 7": {"reads": [7]},
    "broadcast must be 1 flags, one of them 0": {"broadcast": [1]},
    "arrays are broadcast on GPUs only": {"reads": [FLOAT, FLOAT], "broadcast": [0, 1]},
    "program must be three numbers a step, got: 2": {"program": [2, 0]},
    "a step must be of kind 0 to 5, got: 6": {"program": [6, 0, 1]},
    "operands of a step must be values from 0 to 1, got: 2": {"program": [2, 0, 2]},
    "results must be values from 1 to 2, got: 0": {"results": [0]},
    "expected arrays to read, and a type for each of the results, "
    "got: 1 read, 1 results, 2 types": {"writes": [FLOAT, FLOAT]},
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_program_is_refused(message: str, tmp_path: Path) -> None:
    onnx.save(elementwise(**WRONG[message]), tmp_path / "m.onnx")
    with pytest.raises(UserError) as raised:
        training_session(tmp_path / "m.onnx", 1)
    assert message in str(raised.value)


def test_the_program_runs_as_it_is_written(tmp_path: Path) -> None:
    onnx.save(elementwise(), tmp_path / "m.onnx")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = training_session(tmp_path / "m.onnx", 1)
    found = run(made, {"s": np.array(3, np.float32), "x": x})
    np.testing.assert_array_equal(found["y"], 3 * x)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_long_chains_of_gradients(count: int, tmp_path: Path) -> None:
    names = ["x", *(f"p{n}" for n in range(1, count)), "z"]
    nodes = [node("Mul", before, "y", after) for before, after in itertools.pairwise(names)]
    products = model(nodes, [typed("x", [3, 50]), typed("y", [3, 50])], [typed("z", [3, 50])])
    onnx.save(products, tmp_path / "m.onnx")
    session = training_session(tmp_path / "m.onnx", 1)
    x, y = np.random.default_rng(0).uniform(0.5, 1.5, (2, 3, 50)).astype(np.float32)
    session.feed("x", x)
    session.feed("y", y)
    session.run()
    np.testing.assert_allclose(session.fetch()["z"], x * y**count, rtol=1e-5)
    assert fuse_chains(products) is (count > 2)
    assert len(products.graph.node) == (1 if count > 2 else count)


SPECIAL = np.array([-np.inf, -1.5, -0.0, 0.0, 1e-45, 2.0, np.inf, np.nan], np.float32)


def relu_gradient(kind: str = "Greater", other: float = 0.0) -> onnx.ModelProto:
    """Return z = dy where y > 0 and ``other`` elsewhere, for all pairs of special values."""
    nodes = [node(kind, "y", "zero", "passes"), node("Where", "passes", "dy", "other", "z")]
    shape = (SPECIAL.size, SPECIAL.size)
    made = model(nodes, [typed(name, shape) for name in ("y", "dy")], [typed("z", shape)])
    for name, number in (("zero", 0.0), ("other", other)):
        made.graph.initializer.append(numpy_helper.from_array(np.array(number, np.float32), name))
    return made


@pytest.mark.parametrize("threads", [1, 2])
def test_a_gradient_of_relu_is_one_node(threads: int, tmp_path: Path) -> None:
    gates = relu_gradient()
    onnx.save(gates, tmp_path / "m.onnx")
    session = training_session(tmp_path / "m.onnx", threads)
    y, dy = np.meshgrid(SPECIAL, SPECIAL)
    session.feed("y", np.ascontiguousarray(y))
    session.feed("dy", np.ascontiguousarray(dy))
    session.run()
    np.testing.assert_array_equal(session.fetch()["z"], np.where(y > 0, dy, 0))
    assert fuse_chains(gates)
    assert [one.op_type for one in gates.graph.node] == ["Elementwise"]


@pytest.mark.parametrize("case", [("Less", 0.0), ("Greater", 1.0)])
def test_other_selections_stay(case: tuple[str, float]) -> None:
    selection = relu_gradient(*case)
    before = selection.SerializeToString(deterministic=True)
    assert not fuse_chains(selection)
    assert selection.SerializeToString(deterministic=True) == before


def test_a_comparison_with_other_readers_stays() -> None:
    gates = relu_gradient()
    gates.graph.output.append(typed("passes", (SPECIAL.size, SPECIAL.size), TensorProto.BOOL))
    assert fuse_chains(gates)
    assert {one.op_type for one in gates.graph.node} == {"Greater", "Elementwise"}

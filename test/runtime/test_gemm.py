"""Large products of training steps run on our kernel, with the results of float64."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.ops.library import vector_lanes
from tensoropt.runtime.session.gemm import use_own_gemms
from tensoropt.runtime.session.session import RankSession, made_session, training_session
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

FLOAT = TensorProto.FLOAT


@dataclass(frozen=True)
class Case:
    """Sizes and options of a product."""

    rows: int
    depth: int
    columns: int
    transposes_a: bool = False
    transposes_b: bool = False
    has_bias: bool = False

    def shapes(self) -> dict[str, list[int]]:
        a, b = [self.rows, self.depth], [self.depth, self.columns]
        sides = {"a": a[::-1] if self.transposes_a else a, "b": b[::-1] if self.transposes_b else b}
        return {**sides, **({"bias": [self.columns]} if self.has_bias else {})}

    def model(self, domain: str, **factors: float) -> onnx.ModelProto:
        flags = {"transA": int(self.transposes_a), "transB": int(self.transposes_b)}
        shapes = self.shapes()
        node = helper.make_node("Gemm", [*shapes], ["y"], domain=domain, **flags, **factors)
        inputs = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in shapes.items()]
        y = helper.make_tensor_value_info("y", FLOAT, [self.rows, self.columns])
        graph = helper.make_graph([node], "g", inputs, [y])
        imports = [helper.make_opsetid("", 20), helper.make_opsetid("tensoropt", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def operands(self) -> dict[str, Array]:
        rng = np.random.default_rng(0)
        return {n: rng.standard_normal(s, np.float32) for n, s in self.shapes().items()}


def run(session: RankSession, operands: dict[str, Array]) -> Array:
    for name, array in operands.items():
        session.feed(name, array)
    session.run()
    return session.fetch()["y"]


def product(case: Case, operands: dict[str, Array]) -> Array:
    """Return the product by NumPy in float64."""
    a, b = (operands[name].astype(np.float64) for name in "ab")
    y = (a.T if case.transposes_a else a) @ (b.T if case.transposes_b else b)
    return y + operands["bias"] if case.has_bias else y


def check(case: Case, folder: Path, domain: str = "tensoropt") -> None:
    operands, path = case.operands(), folder / "m.onnx"
    onnx.save(case.model(domain), path)
    one, two = (run(training_session(path, threads), operands) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)
    expected = product(case, operands)
    tolerance = 1e-6 * max(1, case.depth)
    np.testing.assert_allclose(one, expected, rtol=0, atol=tolerance)


FLAGS = [*itertools.product([False, True], repeat=3)]


@pytest.mark.parametrize("flags", FLAGS)
def test_several_blocks_and_rests(flags: tuple[bool, bool, bool], tmp_path: Path) -> None:
    check(Case(197, 531, 1009, *flags), tmp_path)


@pytest.mark.parametrize("flags", FLAGS)
def test_no_terms_or_no_results(flags: tuple[bool, bool, bool], tmp_path: Path) -> None:
    for sizes in ((3, 0, 5), (0, 3, 5), (3, 5, 0)):
        check(Case(*sizes, *flags), tmp_path)


@examples(60)
@given(
    st.builds(
        Case,
        *[st.integers(1, 120) | st.sampled_from([255, 256, 257, 300])] * 2,
        st.integers(1, 120) | st.sampled_from([479, 480, 481, 700]),
        *[st.booleans()] * 3,
    )
)
def test_any_sizes(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    check(case, tmp_path_factory.mktemp("gemm"))


LARGE = Case(512, 512, 1024, has_bias=True)


@pytest.mark.skipif(vector_lanes() < 8, reason="products of ONNX Runtime")
class TestReplacement:
    """Which products are replaced."""

    @pytest.mark.parametrize(
        ("case", "is_ours"),
        [
            (LARGE, True),
            (replace(LARGE, rows=120), False),
            (replace(LARGE, rows=256, transposes_a=True), True),
            (replace(LARGE, rows=12, transposes_a=True), False),
        ],
    )
    def test_large_ones(self, case: Case, is_ours: bool, tmp_path: Path) -> None:
        model = case.model("")
        assert use_own_gemms(model, model) is is_ours
        assert (model.graph.node[0].domain == "tensoropt") is is_ours
        check(case, tmp_path, domain="")

    @pytest.mark.parametrize("factors", [{"alpha": 2.0}, {"beta": 0.5}])
    def test_not_those_with_factors(self, factors: dict[str, float]) -> None:
        model = LARGE.model("", **factors)
        assert not use_own_gemms(model, model)

    def test_not_those_with_a_matrix_to_add(self) -> None:
        model = LARGE.model("")
        dims = model.graph.input[2].type.tensor_type.shape.dim
        dims.add().CopyFrom(dims[0])
        dims[0].dim_value = 1
        assert not use_own_gemms(model, model)

    @pytest.mark.parametrize(
        ("x", "w", "is_ours"),
        [
            ([4, 128, 512], [512, 1024], True),
            ([512, 512], [512, 1024], True),
            ([2, 2, 128, 512], [512, 1024], True),
            ([4, 128, 512], [4, 512, 1024], False),
            ([512], [512, 1 << 19], False),
        ],
    )
    def test_stacks_of_matrices(
        self, x: list[int], w: list[int], is_ours: bool, tmp_path: Path
    ) -> None:
        shapes = {"x": x, "w": w}
        inputs = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in shapes.items()]
        y = helper.make_tensor_value_info("y", FLOAT, [*x[:-1], w[-1]])
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", inputs, [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        onnx.save(model, tmp_path / "m.onnx")
        assert use_own_gemms(model, model) is is_ours
        if not is_ours:
            return
        rng = np.random.default_rng(0)
        operands = {n: rng.standard_normal(s, np.float32) for n, s in shapes.items()}
        expected = operands["x"].astype(np.float64) @ operands["w"]
        found = run(training_session(tmp_path / "m.onnx", 1), operands)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)

    def test_products_in_a_step_of_batches(self, tmp_path: Path) -> None:
        """ONNX Runtime merges the batch and the rows, and the addition."""
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
            helper.make_node("Add", ["xw", "bias"], ["y"], name="sum"),
        ]
        shapes = {"x": [2, 256, 512], "w": [512, 1024], "bias": [1024]}
        inputs = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in shapes.items()]
        typed = [helper.make_tensor_value_info(n, FLOAT, [2, 256, 1024]) for n in ("xw", "y")]
        graph = helper.make_graph(nodes, "g", inputs, typed[1:], value_info=typed[:1])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        rng = np.random.default_rng(0)
        operands = {n: rng.standard_normal(s, np.float32) for n, s in shapes.items()}
        onnx.save(model, tmp_path / "m.onnx")
        y = run(training_session(tmp_path / "m.onnx", 1), operands)
        plain = run(made_session(model.SerializeToString(), CPU), operands)
        np.testing.assert_allclose(y, plain, rtol=0, atol=1e-3)


def test_errors_name_the_node(tmp_path: Path) -> None:
    case = Case(3, 4, 5)
    model = case.model("tensoropt")
    model.graph.node[0].name = "one"
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.Clear()
    onnx.save(model, tmp_path / "m.onnx")
    session = training_session(tmp_path / "m.onnx", 1)
    with pytest.raises(UserError, match=r"Gemm node 'one': expected .*\[3, 7\] and \[4, 5\]"):
        run(session, {**case.operands(), "a": np.zeros((3, 7), np.float32)})

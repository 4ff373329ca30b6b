"""Data parallelism and the experts' schemes, looked at op by op."""

from __future__ import annotations

import method_cases as cases
import pytest

from tensoropt.compiler.comparison.case import Assignment, Case, Limits
from tensoropt.compiler.comparison.megatron import model_factors
from tensoropt.compiler.comparison.registry import run_method
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.batch import follow_batch
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh


def _layouts(case: Case, choice: Assignment) -> dict[str, tuple[list[str], list[str]]]:
    """Operand and result layouts of each node, by its name."""
    assert case.tables is not None
    held = {}
    for index, picked in zip(case.tables.variables, choice, strict=False):
        option = case.tables.options[index][picked]
        name = case.tables.graph.nodes[index].name
        held[name] = [str(x) for x in option.operands], [str(x) for x in option.results]
    return held


def test_data_parallelism_splits_the_batch_everywhere() -> None:
    case = cases.model_case("gpt2_tiny", (2, 2))
    assert case.tables is not None
    point = run_method("data-parallel", case, Limits()).points[0]
    graph, batch = case.tables.graph, follow_batch(case.tables.graph)
    assert len(batch.factors) > 60
    for index, picked in zip(case.tables.variables, point.assignment, strict=False):
        if index in batch.factors:
            option = case.tables.options[index][picked]
            assert option.roles == (batch.factors[index],) * 2, graph.nodes[index].name
    layouts = _layouts(case, point.assignment)
    assert layouts["x"][1] == ["[S(0), S(0)]"]
    assert layouts["node_Gemm_278"] == (["[S(0), S(0)]", "[R, R]"], ["[S(0), S(0)]"])


def test_a_batch_of_one_cannot_be_split() -> None:
    case = cases.model_case("squeezenet", (4,))
    point = run_method("data-parallel", case, Limits()).points[0]
    convolutions = [
        held for name, held in _layouts(case, point.assignment).items() if "Conv" in name
    ]
    assert all(results == ["[R]"] for _, results in convolutions)


def test_megatron_splits_columns_then_rows_and_heads() -> None:
    graph = cases.graph_of("gpt2_tiny")
    factors = {graph.nodes[i].name: factor for i, factor in model_factors(graph).items()}
    # Gemm: factors m, n, k; attention: batch, head, ...; Gather: the vocabulary comes last.
    want = {"node_Gemm_278": 1, "node_matmul": 1, "node_matmul_1": 1, "node_Gemm_281": 2}
    want |= {"node_Gemm_282": 1, "node_Gemm_283": 2, "node_embedding": 3}
    assert want.items() <= factors.items()


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_megatron_on_a_mesh(mesh: tuple[int, ...]) -> None:
    case = cases.model_case("gpt2_tiny", mesh)
    points = run_method("expert", case, Limits()).points
    seen = [_layouts(case, point.assignment)["node_Gemm_283"] for point in points]
    rows = {
        (4,): [["[S(1)]", "[S(0)]"]],
        (2, 2): [["[S(1), S(1)]", "[S(0), S(0)]"], ["[S(0), S(1)]", "[R, S(0)]"]],
    }
    assert seen
    assert all(operands in rows[mesh] for operands, _ in seen)


def test_llama_divides_gate_and_up_then_sums_down() -> None:
    graph = cases.graph_of("llama_tiny")
    factors = model_factors(graph)
    kinds = [
        graph.op(index).rule.factors[factor].reduction
        for index, factor in factors.items()
        if graph.op(index).info.name == "MatMul"
    ]
    # q, k, v; scores, values; out; gate, up; down: two sums per layer, and one head at the end.
    assert kinds.count("sum") == 4
    assert kinds[:9].count("sum") == 2


def test_one_weird_trick() -> None:
    case = cases.model_case("bvlc_alexnet", (2, 2))
    point = run_method("expert", case, Limits()).points[0]
    layouts = _layouts(case, point.assignment)
    for name in ("n16", "n19", "n22"):  # the fully connected layers
        assert layouts[name] == (["[R, R]", "[S(0), S(0)]", "[S(0), S(0)]"], ["[S(1), S(1)]"])
    assert layouts["n12"][1] == ["[R, R]"]  # a convolution of one image


def test_expert_needs_something_to_split() -> None:
    text = """module attributes {topt.opset = {ai.onnx = 20 : i64}} {
      func.func @main(%x: tensor<4xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.name = "y"}) {
        %0 = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }"""
    with driver.new_context():
        module = driver.parse_text(text)
        driver.run_phase(module, "rules")
        tables = MeshTables(read_graph(module), Mesh((2,)), load_device("cpu"))
    with pytest.raises(
        UserError, match="--search expert: no scheme fits the model, expected a con"
    ):
        run_method("expert", Case(tables.problem, tables), Limits())

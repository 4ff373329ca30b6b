"""The problem of a model: what is equal is the same object, so that repeated layers cost little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs.gpt import Gpt
from small_models import shared_weight_module, tables_of

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.cost.measurements import Operator
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.constants import whole_nodes
from tensoropt.compiler.program.graph import Argument, Node, Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.search.problem.edge_tables import EdgeTables
from tensoropt.compiler.search.problem.problem import Problem
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

MESH = Mesh((2, 2))
INFO = TensorInfo((8, 8), "float32", 4)


def _tables(layers: int, folder: Path) -> MeshTables:
    model = Gpt(layers=layers, width=32, heads=4, vocabulary=64, sequence=8, batch=4)
    module = driver.load(model.build("gpt").save(folder), {})
    driver.advance(module, "rules")
    return MeshTables(read_graph(module), MESH, load_device("h200"))


def _distinct(problem: Problem) -> tuple[int, int]:
    return len({id(t) for t in problem.nodes}), len({id(t.time_s) for t in problem.edges})


def test_more_layers_have_no_more_tables(tmp_path: Path) -> None:
    few, many = (_tables(n, tmp_path).problem for n in (3, 6))
    assert len(many.edges) > 1.5 * len(few.edges)
    assert _distinct(few) == _distinct(many)


def test_nodes_alike_have_equal_costs(tmp_path: Path) -> None:
    tables = _tables(2, tmp_path)
    assert len({tables.alike[index] for index in tables.variables}) < len(tables.variables)
    for index in tables.variables:
        node, like = (tables.graph.nodes[i] for i in (index, tables.alike[index]))
        assert tables.options[index] == tables.options[tables.alike[index]]
        for strategy in tables.options[index]:
            assert _costs(tables, node, strategy) == _costs(tables, like, strategy)


def test_a_small_constant_is_whole_if_many_use_it(tmp_path: Path) -> None:
    model = Gpt(layers=6, width=64, heads=4, vocabulary=16, sequence=8, batch=4).build("gpt")
    module = driver.load(model.save(tmp_path), {})
    driver.run_phase(module, "rules")
    graph = read_graph(module)
    whole = {graph.nodes[index].name for index in whole_nodes(graph)}
    assert "causal/greaterorequal" in whole  # one use per layer
    assert "tokens.weight" not in whole  # tied to the output: two uses


def _costs(tables: MeshTables, node: Node, strategy: Strategy) -> tuple[float, ...]:
    return (
        tables.op_time_s(node, strategy),
        tables.inner_time_s(node, strategy),
        tables.static_bytes(node, strategy),
        tables.transient_bytes(node, strategy),
    )


def _layouts(*texts: str) -> tuple[Layout, ...]:
    return tuple(Layout.parse(text.split()) for text in texts)


def test_a_weight_of_the_shape_of_an_input_has_padding_of_its_own() -> None:
    tables = tables_of(shared_weight_module(100), Mesh((3,)))
    fed, weight = (
        {option.results[0] for option in tables.options[index]}
        for index, node in enumerate(tables.graph.nodes)
        if isinstance(node, Argument)
    )
    padded = set(_layouts("S(0)", "S(1)"))
    assert weight >= padded
    assert not fed & padded


def test_an_edge_costs_what_its_cheapest_path_costs() -> None:
    resharder = Resharder(MESH, load_device("h200"))
    ends = _layouts("R R", "S(0) S(1)", "P(sum) R", "R R"), _layouts("R S(1)", "R R", "S(1) R")
    time_s, transient = EdgeTables(resharder).table(INFO, *ends, constant=False)
    paths = [[resharder.path((8, 8), 4, a, b) for b in ends[1]] for a in ends[0]]
    np.testing.assert_array_equal(time_s, [[p.time_s for p in row] for row in paths])
    np.testing.assert_array_equal(transient, [[p.peak_bytes for p in row] for row in paths])


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("R R", "S(0) S(1)", True),
        ("S(0) R", "S(0) S(0)", True),
        ("R S(0)", "S(0) S(0)", False),
        ("S(0) R", "R R", False),
        ("S(0) R", "S(1) R", False),
    ],
)
def test_a_constant_is_cut_but_never_sent(source: str, target: str, allowed: bool) -> None:
    tables = EdgeTables(Resharder(MESH, load_device("h200")))
    ends = _layouts(source), _layouts(target)
    time_s, transient = tables.table(INFO, *ends, constant=True)
    assert time_s[0, 0] == (0 if allowed else np.inf)
    assert transient[0, 0] == 0


def test_tables_of_tuples_that_are_gone_are_not_mixed_up() -> None:
    """A new tuple may get the identity of one that is gone."""
    tables = EdgeTables(Resharder(MESH, load_device("h200")))
    targets = _layouts("R R")
    times = []
    for text in ("R R", "S(0) R") * 20:
        times.append(tables.table(INFO, _layouts(text), targets, constant=False)[0][0, 0])
    assert len(set(times[::2])) == len(set(times[1::2])) == 1
    assert times[0] < times[1]


def test_an_op_that_was_measured_to_be_part_of_another_is_free_there() -> None:
    text = """module attributes {topt.opset = {ai.onnx = 20 : i64}} {
      func.func @main(%x: tensor<8xf32> {topt.name = "x"}) -> (tensor<8xf32> {topt.name = "y"}) {
        %0 = "onnx.Exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
        %1 = "onnx.Relu"(%0) : (tensor<8xf32>) -> tensor<8xf32>
        %2 = "onnx.Relu"(%1) : (tensor<8xf32>) -> tensor<8xf32>
        return %2 : tensor<8xf32>
      }
    }"""
    relu = Operator(1e-6, fused=frozenset({("Exp",)}))
    device = replace(load_device("cpu"), operators={("Relu", "float32"): relu})
    with driver.new_context():
        module = driver.parse_text(text)
        driver.run_phase(module, "rules")
        tables = MeshTables(read_graph(module), Mesh((1,)), device)
    ops = [index for index, node in enumerate(tables.graph.nodes) if isinstance(node, Op)]
    times = [float(tables.node_table(index).time_s[0]) for index in ops]
    assert times[0] > 0
    assert times[1:] == [0.0, 1e-6]  # equal ops, but not after the same


@pytest.mark.parametrize(
    ("samples", "width", "ranks", "expected"),
    [
        (6, 7, 4, {"S(0)"}),  # samples may have more padding than other dimensions
        (7, 7, 4, {"S(0)", "S(1)"}),
        (6, 7, 3, {"S(0)", "S(1)"}),  # few sizes divide by 3
        (8, 7, 5, {"S(0)"}),  # 7 would have 3 points of padding
        (8, 9, 5, {"S(0)", "S(1)"}),
        (5, 63, 4, {"S(1)"}),  # little padding
    ],
)
def test_a_power_of_two_pads_samples_and_what_needs_little(
    samples: int, width: int, ranks: int, expected: set[str]
) -> None:
    with driver.new_context():
        module = driver.parse_text(_RELU.format(samples, width))
    driver.run_phase(module, "rules")
    tables = MeshTables(read_graph(module), Mesh((ranks,)), load_device("cpu"))
    (relu,) = (index for index, node in enumerate(tables.graph.nodes) if isinstance(node, Op))
    offered = {str(own.results[0].placements[0]) for own in tables.options[relu]}
    assert offered - {"R"} == expected


_RELU = """
module attributes {{topt.opset = {{ai.onnx = 20 : i64}}}} {{
  func.func @main(%x: tensor<{0}x{1}xf32> {{topt.name = "x"}})
      -> (tensor<{0}x{1}xf32> {{topt.name = "y"}}) {{
    %0 = "onnx.Relu"(%x) : (tensor<{0}x{1}xf32>) -> tensor<{0}x{1}xf32>
    return %0 : tensor<{0}x{1}xf32>
  }}
}}
"""

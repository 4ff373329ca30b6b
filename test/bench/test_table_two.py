"""Ops of the rows of Table II, and their splits."""

from __future__ import annotations

import re

import pytest
from search import table_two
from search_graphs import model_graph
from tiny import TINY

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.runtime.layout.mesh import Mesh


@pytest.mark.parametrize("model", table_two.MODELS, ids=lambda model: str(model.name))
def test_every_letter_is_a_dimension(model: table_two.Model) -> None:
    """Each op of a group splits its letters: over one axis, and no letter twice."""
    graph = model_graph(model.name, **TINY[model.name])
    tables = MeshTables(graph, Mesh((2,)), load_device("gtx1080ti"))
    for group in (group for group in model.groups if group.ops):
        matched = [i for i, n in enumerate(graph.nodes) if re.fullmatch(group.ops, n.name)]
        assert matched, group.ops
        for index in matched:
            cuts = _all_cuts(graph, tables, index, group)
            assert "whole" in cuts
            assert cuts - {"whole"} <= {f"{letter} 2" for letter in group.dims}
            assert len(cuts) > 2


def _all_cuts(graph: Graph, tables: MeshTables, index: int, group: table_two.Group) -> set[str]:
    options = tables.options[index]
    return {table_two.cuts(graph.nodes[index], option, (2,), group.dims) for option in options}


def test_axes_on_one_dimension_multiply() -> None:
    graph = model_graph("alexnet", **TINY["alexnet"])
    tables = MeshTables(graph, Mesh((2, 2)), load_device("gtx1080ti"))
    index = next(i for i, node in enumerate(graph.nodes) if node.name == "conv2/conv")
    dims = table_two.MODELS[0].groups[0].dims
    cuts = {table_two.cuts(graph.nodes[index], o, (2, 2), dims) for o in tables.options[index]}
    assert {"whole", "n 4", "c 2, n 2", "c 4"} <= cuts

"""Followers split as one would by hand: data parallel, by columns, by rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from training.steps import Node, build, model_of, spec_of
from training.test_search import network

from tensoropt.compiler.layout.rule import AxisRole
from tensoropt.compiler.program.graph import Argument, Graph, Op, Result
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.problem.clusters import Cluster, clusters_of
from tensoropt.compiler.search.problem.following import follow
from tensoropt.compiler.sharding.rule.strategies import axis_roles, placements

Texts = tuple[str, ...]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return read_graph(build(network(tmp_path), spec_of("output:l", "adamw")))


def _cluster(graph: Graph, name: str) -> Cluster:
    return next(c for c in clusters_of(graph) if graph.nodes[c.leader].name == name)


def _texts(graph: Graph, index: int, choice: AxisRole) -> tuple[Texts, Texts]:
    rule = graph.op(index).rule
    operands, results = placements(rule, choice)
    return tuple(map(str, operands)), tuple(map(str, results))


def _followed(graph: Graph, name: str) -> dict[tuple[Texts, Texts], list[tuple[Texts, Texts]]]:
    """Return, per placement of the leader, those of the followers that are no literals."""
    cluster = _cluster(graph, name)
    rule, members = graph.op(cluster.leader).rule, cluster.members[1:]
    found = {}
    for choice in axis_roles(rule):
        followed = zip(members, follow(graph, cluster.leader, members, choice), strict=True)
        held = [_texts(graph, m, c) for m, c in followed if not graph.nodes[m].constant]
        found[_texts(graph, cluster.leader, choice)] = held
    return found


S0, S1, R, P = "S(0)", "S(1)", "R", "P(sum)"


def test_a_product_is_followed_by_those_of_its_operands(graph: Graph) -> None:
    """y = x w: dx = dy w^T and dw = x^T dy, with nothing moved but sums."""
    found = _followed(graph, "p0")
    assert found[(S0, R), (S0,)] == [((S0, R), (S0,)), ((S0, S0), (P,))]
    assert found[(R, S1), (S1,)] == [((S1, S1), (P,)), ((R, S1), (S1,))]
    assert found[(S1, S0), (P,)] == [((R, S0), (S1,)), ((S1, R), (S0,))]
    assert found[(R, R), (R,)] == [((R, R), (R,)), ((R, R), (R,))]


def test_what_an_axis_replicates_it_replicates_in_the_followers(graph: Graph) -> None:
    for cluster in clusters_of(graph):
        members = cluster.members[1:]
        assert follow(graph, cluster.leader, members, None) == [None] * len(members)


def test_elementwise_ops_follow_their_leader(graph: Graph) -> None:
    found = _followed(graph, "r0")
    assert all(results == (S1,) for _, results in found[(S1,), (S1,)])


def test_the_update_follows_the_gradient(graph: Graph) -> None:
    leaders = ((c, graph.nodes[c.leader]) for c in clusters_of(graph))
    cluster = next(
        c for c, own in leaders if isinstance(own, Op) and own.held and len(own.operands) == 1
    )
    kinds = [type(graph.nodes[member]) for member in cluster.members]
    assert kinds.count(Argument) == kinds.count(Result) == 2  # the moments of Adam


def test_equal_layers_are_of_equal_kinds(graph: Graph) -> None:
    kinds = [_cluster(graph, f"r{layer}").kind for layer in (0, 1)]
    assert kinds[0] == kinds[1]


def test_hidden_units_stay_split_through_time(tmp_path: Path) -> None:
    """No step of an LSTM turns to its batch, and none computes all hidden units."""
    nodes: list[Node] = [
        ("LSTM", ["x", "w", "r"], "h", {"hidden_size": 8}),
        ("ReduceSum", ["h"], "l", {"keepdims": 0}),
    ]
    weights = {name: np.ones((1, 32, 8), np.float32) for name in ("w", "r")}
    path = tmp_path / "model.onnx"
    held = model_of(nodes, {"x": np.ones((6, 4, 8), np.float32)}, ["l"], weights)
    path.write_bytes(held.SerializeToString())
    graph = read_graph(build(path, spec_of("output:l", "sgd")))
    (cluster,) = (c for c in clusters_of(graph) if "Recurrence" in graph.nodes[c.leader].name)
    rule, members = graph.op(cluster.leader).rule, cluster.members[1:]
    (hidden,) = (c for c in axis_roles(rule) if str(placements(rule, c)[1][0]) == "S(3)")
    followed = zip(members, follow(graph, cluster.leader, members, hidden), strict=True)
    chosen = [(m, c) for m, c in followed if not graph.nodes[m].constant]
    assert len(chosen) > 100
    assert all(choice is not None for _, choice in chosen)
    four = [_texts(graph, m, c)[1][0] for m, c in chosen if _rank(graph, m) == 4]
    assert "S(0)" not in four


def _rank(graph: Graph, index: int) -> int:
    info = graph.values[graph.nodes[index].results[0]].info
    return -1 if info is None else info.rank

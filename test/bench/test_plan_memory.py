"""Memory in the tables of the search, compared with its plans."""

from __future__ import annotations

from accuracy.plan_memory import truths
from search_graphs import model_graph
from tiny import TINY

from tensoropt.compiler.cost.device import load_device
from tensoropt.runtime.layout.mesh import Mesh


def test_a_program_costs_no_more_time_and_no_less_memory_than_is_charged() -> None:
    graph = model_graph("gpt3_13b", **TINY["gpt3_13b"])
    every = truths(graph, Mesh((2, 2)), load_device("h200"))
    for row in every:
        assert row.points > 1
        assert 1 - 1e-9 <= row.time_most < 1.02
        assert 0 < row.memory_least <= 1 + 1e-9
    assert every[-1].leanest_bytes <= every[0].leanest_bytes

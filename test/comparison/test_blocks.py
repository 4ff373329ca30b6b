"""Layers of a model, and parts of a problem solved alone."""

from __future__ import annotations

import itertools
from pathlib import Path

import brute
import method_cases as cases
import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.cli.instance import load_instance
from tensoropt.compiler.comparison.autoddl import descend
from tensoropt.compiler.comparison.blocks import Block, blocks_of
from tensoropt.compiler.comparison.case import Assignment, Case
from tensoropt.compiler.comparison.layers import layers_of
from tensoropt.compiler.comparison.random_search import random_assignment
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem

INSTANCES = Path(__file__).parents[1] / "search" / "instances"


def _names(case: Case) -> list[list[str]]:
    """The layers by the names of their ops, copies by a plus."""
    assert case.tables is not None
    variables, nodes = case.tables.variables, case.tables.graph.nodes
    names = [nodes[index].name for index in variables]
    names += ["+"] * (len(case.problem.nodes) - len(names))
    return [[names[node] for node in layer] for layer in layers_of(case)]


@pytest.mark.parametrize("model", ["gpt2_tiny", "llama_tiny", "vit_tiny", "squeezenet"])
def test_every_node_is_in_one_layer(model: str) -> None:
    case = cases.model_case(model, (2, 2))
    held = sorted(itertools.chain(*layers_of(case)))
    assert held == list(range(len(case.problem.nodes)))


def test_layers_of_a_cnn() -> None:
    layers = _names(cases.model_case("bvlc_alexnet", (2, 2)))
    # Five convolutions and three products; what follows one goes with it.
    ops = [[name for name in layer if name.startswith("n")] for layer in layers]
    assert ops[0] == ["n0", "n1", "n2", "n3"]
    assert [len(layer) for layer in ops] == [4, 4, 2, 2, 4, 2, 2, 2]


def test_what_has_no_weights_belongs_to_its_operands() -> None:
    layers = _names(cases.model_case("gpt2_tiny", (2, 2)))
    (attention,) = (layer for layer in layers if "node_Gemm_278" in layer)
    assert {"node_matmul", "node_softmax", "node_matmul_1"} <= set(attention)
    assert not any("Gemm" in name for name in attention if name != "node_Gemm_278")
    (out,) = (layer for layer in layers if "node_Gemm_281" in layer)
    assert out[-1] == "+"  # the sum that the next layer and the one after next read


def test_tables_alone_have_a_layer_per_node() -> None:
    problem = load_instance(INSTANCES / "alexnet_p8.npz")
    assert layers_of(Case(problem)) == [[node] for node in range(len(problem.nodes))]


def _random(seed: int) -> tuple[Problem, list[Block], Assignment] | None:
    """A problem, its nodes in random groups, and an allowed choice if there is one."""
    rng = np.random.default_rng(seed)
    problem = brute.random_problem(rng)
    if not brute.pareto(*brute.enumerate_costs(problem)):
        return None
    group = rng.integers(0, 3, len(problem.nodes))
    groups = [np.flatnonzero(group == g).tolist() for g in sorted(set(group.tolist()))]
    return problem, blocks_of(problem, groups), random_assignment(problem, seed)


def _others(problem: Problem, block: Block, choice: Assignment) -> list[Assignment]:
    """Every choice that differs from ``choice`` within the block alone."""
    sizes = [range(len(problem.nodes[node].time_s)) for node in block.nodes]
    found = []
    for mine in itertools.product(*sizes):
        found.append(choice.copy())
        found[-1][block.nodes] = mine
    return found


@given(st.integers(0, 2**32 - 1))
@examples(150)
def test_a_block_finds_what_enumeration_finds(seed: int) -> None:
    made = _random(seed)
    if made is None:
        return
    problem, blocks, choice = made
    for block in blocks:
        others = _others(problem, block, choice)
        times = [problem.cost(other).time for other in others]
        best = choice.copy()
        best[block.nodes] = block.best(choice)
        assert problem.cost(best).time == pytest.approx(min(times))
        rest = problem.cost(choice).time - block.time_s(choice[block.nodes], choice)
        for other, time in zip(others, times, strict=True):
            assert rest + block.time_s(other[block.nodes], choice) == pytest.approx(time)


@given(st.integers(0, 2**32 - 1))
@examples(100)
def test_a_descent_ends_where_no_block_gains(seed: int) -> None:
    made = _random(seed)
    if made is None:
        return
    problem, blocks, start = made
    end = descend(blocks, start, np.random.default_rng(seed))
    time = problem.cost(end).time
    assert time <= problem.cost(start).time
    for block in blocks:
        others = _others(problem, block, end)
        assert min(problem.cost(other).time for other in others) >= time * (1 - 1e-9) - 1e-12


def test_equal_blocks_share_what_they_found() -> None:
    own, joined = np.arange(3.0), np.ones((3, 3))
    edges = [EdgeTable(n, n + 1, joined) for n in range(7)]
    problem = Problem([NodeTable(own) for _ in range(8)], edges)
    blocks = blocks_of(problem, [[0, 1], [2, 3], [4, 5], [6, 7]])
    first, second, third, last = (id(block.known) for block in blocks)
    assert second == third
    assert len({first, second, last}) == 3

"""Problems and models that the methods are tried on."""

from __future__ import annotations

from functools import cache

import brute
import numpy as np
import zoo

from tensoropt.compiler.comparison.case import Case
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["dense_problem", "graph_of", "model_case", "random_case"]


def random_case(seed: int) -> tuple[Case, list[tuple[float, float]]]:
    """A small random problem, and its frontier of (time, memory) by enumeration."""
    problem = brute.random_problem(np.random.default_rng(seed))
    return Case(problem), brute.pareto(*brute.enumerate_costs(problem))


@cache
def graph_of(name: str) -> Graph:
    """The prepared graph of a model of the zoo."""
    is_cnn = name in zoo.CNNS
    path = zoo.cnn_path(name) if is_cnn else zoo.transformer_path(name)
    module = driver.load(path, zoo.DIMS.get(name, {}))
    driver.advance(module, "rules")
    return read_graph(module)


@cache
def model_case(name: str, mesh: tuple[int, ...], device: str = "h200") -> Case:
    """The case of a model on a mesh."""
    tables = MeshTables(graph_of(name), Mesh(mesh), load_device(device))
    return Case(tables.problem, tables)


def dense_problem(nodes: int, size: int) -> Problem:
    """Every pair of nodes joined: tables as wide as there are nodes."""
    tables = [NodeTable(np.arange(size) + 1.0) for _ in range(nodes)]
    pairs = [(a, b) for b in range(nodes) for a in range(b)]
    return Problem(tables, [EdgeTable(a, b, np.ones((size, size))) for a, b in pairs])

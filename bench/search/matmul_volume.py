"""Words that the fastest plan of a matrix product sends, compared with the lower bound.

The product C = A B is planned for a device on which only bandwidth costs: no latency, no time to
compute. A and B are distributed evenly over the ranks, without copies, and C must be too, as the
bound of Al Daas et al. (arXiv 2205.13407, Theorem 3) assumes: only layouts that split A, B and C
over all axes are allowed. All meshes of up to three axes are searched: an axis per dimension of the
grid of ranks. Prints a table; ``--write`` puts it into docs/benchmarks.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
from sections import print_section

from tensoropt.compiler.cost.device import Device, Link
from tensoropt.compiler.layout.mesh import factorisations
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.evaluate import Evaluator
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.problem.problem import NodeTable, Problem
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import run_command

__all__ = ["SHAPES", "bandwidth_device", "fewest_words", "lower_bound", "measure", "table"]

SHAPES = {
    "square": (4096, 4096, 4096),
    "tall": (65536, 512, 512),
    "flat": (8192, 512, 8192),
    "deep": (512, 65536, 512),
}
"""(m, k, n) of C[m, n] = A[m, k] B[k, n]."""

COUNTS = (4, 8, 16, 64)
_WORD_BYTES = 4
_BANDWIDTH = 1e6
_TEXT = """\
## One matrix product: words moved against the lower bound

`python bench/search/matmul_volume.py --write`: words that each rank sends in the best plan if only
bandwidth costs, over all meshes of up to three axes; and the fewest words that any algorithm must
send (Al Daas et al., arXiv 2205.13407; the case is of their Theorem 3). A, B and C are distributed
evenly over the ranks, without copies.

If the grid of ranks divides well, plans meet the bound. Each of A, B and C lacks one axis of a
cube's grid and is gathered (or reduced and scattered) along it. That axis must be the minor axis of
some dimension, which needs another order of axes than the mesh's for one of the three
([decision 56](decisions/0056-axis-order-of-split-dimensions.md)). At P = 4 and 16 no grid of whole
numbers meets the bound of a cube.
"""


def lower_bound(shape: Sequence[int], ranks: int) -> tuple[int, float]:
    """Return the case (1, 2 or 3) and the words that some rank must at least send or receive.

    With dimensions ``a >= b >= c``, it is the data that a rank must access, less the part it
    stores.
    """
    c, b, a = sorted(shape)
    if ranks <= a / b:
        case, touched = 1, (a * b + a * c) / ranks + b * c
    elif ranks <= a * b / c**2:
        case, touched = 2, 2 * math.sqrt(a * b * c**2 / ranks) + a * b / ranks
    else:
        case, touched = 3, 3 * (a * b * c / ranks) ** (2 / 3)
    return case, touched - (a * b + a * c + b * c) / ranks


def bandwidth_device() -> Device:
    """Return a device on which only bytes on links take a notable time."""
    link = Link(0.0, _BANDWIDTH)
    return Device("bandwidth", (("float32", 1e30),), 1.0, 1e30, 1 << 60, 1e-12, 64, link, link)


def fewest_words(shape: Sequence[int], mesh: Mesh) -> float:
    """Return the words per rank of the plan on ``mesh`` that sends the fewest."""
    tables = MeshTables(_graph(shape), mesh, bandwidth_device())
    choice = solve_min_time(_evenly(tables)).assignment[: len(tables.variables)]
    cost = Evaluator(tables).evaluate(choice.tolist())
    return cost.communication_s * _BANDWIDTH / _WORD_BYTES


def _graph(shape: Sequence[int]) -> Graph:
    m, k, n = shape
    a, b, c = (f"tensor<{x}x{y}xf32>" for x, y in ((m, k), (k, n), (m, n)))
    text = f"""module attributes {{topt.opset = {{ai.onnx = 20 : i64}}}} {{
      func.func @main(%a: {a} {{topt.name = "a"}}, %b: {b} {{topt.name = "b"}})
          -> ({c} {{topt.name = "c"}}) {{
        %0 = "onnx.MatMul"(%a, %b) : ({a}, {b}) -> {c}
        return %0 : {c}
      }}
    }}"""
    with driver.new_context():
        module = driver.parse_text(text)
    driver.run_phase(module, "rules")
    return read_graph(module)


def _evenly(tables: MeshTables) -> Problem:
    """Return the problem with arguments and results restricted to layouts split over all axes."""
    nodes = []
    for index, node in zip(tables.variables, tables.problem.nodes, strict=True):
        times = node.time_s
        if not isinstance(tables.graph.nodes[index], Op):
            held = [(*option.operands, *option.results)[0] for option in tables.options[index]]
            even = [all(p.is_split for p in layout.placements) for layout in held]
            times = np.where(even, times, np.inf)
        nodes.append(NodeTable(times))
    return Problem(nodes, tables.problem.edges)


def measure(shape: Sequence[int], ranks: int) -> tuple[Mesh, float]:
    """Return the best mesh of up to three axes, and the words per rank on it."""
    meshes = list(factorisations(ranks, 3))
    words = {mesh: fewest_words(shape, mesh) for mesh in meshes}
    best = min(meshes, key=lambda mesh: (round(words[mesh]), len(mesh.shape)))
    return best, words[best]


def table(counts: Sequence[int] = COUNTS) -> str:
    """Return the table of all shapes and counts in Markdown."""
    lines = [
        "| product | m x k x n | P | case | mesh | words moved | lower bound | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, shape in SHAPES.items():
        for ranks in counts:
            case, bound = lower_bound(shape, ranks)
            mesh, words = measure(shape, ranks)
            extents = " x ".join(map(str, shape))
            lines.append(
                f"| {name} | {extents} | {ranks} | {case} | {mesh} | {words:,.0f} | {bound:,.0f} "
                f"| {words / bound:.3f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_command(lambda: print_section(__doc__, "matmul_volume", _TEXT, table)))

"""Share of each model's work that no strategy splits over all ranks, by their number or mesh.

Work is counted by the rules, in floating-point operations. A number of ranks is on one mesh axis or
two, as in a search; on a mesh such as 2x2, all axes must split the work. Most of the rest is in
dimensions that the ranks do not divide: see docs/decisions/0011-padding-of-uneven-dimensions.md.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import zoo

from tensoropt.compiler.layout.mesh import factorisations, parse_mesh
from tensoropt.compiler.layout.rule import Rule, split_by
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.sharding.rule.strategies import Pads, strategies
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["unsplit_shares"]

_MOST_AXES = 2

_LITTLE = 0.005
"""A share of the work that is not listed by operator."""


def unsplit_shares(graph: Graph, meshes: Sequence[Mesh]) -> Counter[str]:
    """Return the share of the work, 0 to 1, of operators that no mesh can split on all axes."""
    ops = [n for n in graph.nodes if isinstance(n, Op) and not n.constant]
    total, shares = max(1.0, sum(_work(op.rule) for op in ops)), Counter[str]()
    for op in ops:
        if not any(_splits(op.rule, mesh, graph.pads) for mesh in meshes):
            shares[op.info.name] += _work(op.rule) / total
    return shares


def _work(rule: Rule) -> float:
    return rule.flops_per_point * math.prod(factor.size or 1 for factor in rule.factors)


def _splits(rule: Rule, mesh: Mesh, pads: Pads) -> bool:
    """Return whether all axes can split a loop; passing on partial sums saves no work."""
    return any(all(split_by(role) for role in s.roles) for s in strategies(rule, mesh, pads))


def _meshes(text: str) -> list[Mesh]:
    """Return the mesh in ``text``, or those of up to two axes of a number of ranks."""
    mesh = parse_mesh(text)
    if len(mesh.shape) > 1:
        return [mesh]
    return list(factorisations(mesh.size, _MOST_AXES))


def main() -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names from bench/zoo.py, or files; default all")
    parser.add_argument("--mesh", nargs="+", default=["2", "3", "4", "8"], metavar="RANKS")
    parser.add_argument("--dim", nargs="+", default=[], metavar="NAME=SIZE")
    parser.add_argument("--operators", action="store_true", help="list those over 0.5%% of a model")
    given = parser.parse()
    print(f"{'ranks or mesh':20}", *(f"{text:>8}" for text in given.mesh))
    with tempfile.TemporaryDirectory() as folder:
        for name in given.models or zoo.NAMES:
            path = zoo.cnn_path(name) if name in zoo.CNNS else zoo.provide(name, Path(folder))
            dims = {key: int(size) for key, size in (pair.split("=") for pair in given.dim)}
            module = driver.load(path, zoo.DIMS.get(name, {}) | dims)
            driver.advance(module, "rules")
            graph = read_graph(module)
            shares = [unsplit_shares(graph, _meshes(text)) for text in given.mesh]
            print(f"{Path(name).stem:20}", *(f"{own.total():8.2%}" for own in shares))
            listed = sorted({op for own in shares for op, share in own.items() if share > _LITTLE})
            for op in listed if given.operators else ():
                print(
                    f"  {op.removeprefix('com.microsoft.'):18}", *(f"{s[op]:8.2%}" for s in shares)
                )
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))

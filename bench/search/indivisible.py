"""Share of each model's work that no strategy splits over all ranks, by the number of ranks.

Work is counted by the rules, in floating-point operations. The ranks are on one mesh axis or two,
as in a search. Most of the rest is in dimensions that the ranks do not divide: see
docs/decisions/0011-padding-of-uneven-dimensions.md.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import zoo

from tensoropt.compiler.layout.mesh import factorisations
from tensoropt.compiler.layout.rule import Rule
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


def unsplit_shares(graph: Graph, ranks: int) -> Counter[str]:
    """Return the share of the work, 0 to 1, of operators that cannot be split ``ranks`` ways."""
    ops = [n for n in graph.nodes if isinstance(n, Op) and not n.constant]
    meshes = [mesh for mesh in factorisations(ranks) if len(mesh.shape) <= _MOST_AXES]
    total, shares = max(1.0, sum(_work(op.rule) for op in ops)), Counter[str]()
    for op in ops:
        if not any(_splits(op.rule, mesh, graph.pads) for mesh in meshes):
            shares[op.info.name] += _work(op.rule) / total
    return shares


def _work(rule: Rule) -> float:
    return rule.flops_per_point * math.prod(factor.size or 1 for factor in rule.factors)


def _splits(rule: Rule, mesh: Mesh, pads: Pads) -> bool:
    """Return whether every axis can split a loop; passing on partial sums saves no work."""
    return any(all(isinstance(r, int) for r in s.roles) for s in strategies(rule, mesh, pads))


def main() -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names from bench/zoo.py, or files; default all")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4, 8])
    parser.add_argument("--dim", nargs="+", default=[], metavar="NAME=SIZE")
    parser.add_argument("--operators", action="store_true", help="list those over 0.5%% of a model")
    given = parser.parse()
    print(f"{'ranks':20}", *(f"{ranks:8}" for ranks in given.ranks))
    with tempfile.TemporaryDirectory() as folder:
        for name in given.models or zoo.NAMES:
            path = zoo.cnn_path(name) if name in zoo.CNNS else zoo.provide(name, Path(folder))
            dims = {key: int(size) for key, size in (pair.split("=") for pair in given.dim)}
            module = driver.load(path, zoo.DIMS.get(name, {}) | dims)
            driver.advance(module, "rules")
            graph = read_graph(module)
            shares = [unsplit_shares(graph, ranks) for ranks in given.ranks]
            print(f"{Path(name).stem:20}", *(f"{own.total():8.2%}" for own in shares))
            listed = sorted({op for own in shares for op, share in own.items() if share > _LITTLE})
            for op in listed if given.operators else ():
                print(
                    f"  {op.removeprefix('com.microsoft.'):18}", *(f"{s[op]:8.2%}" for s in shares)
                )
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))

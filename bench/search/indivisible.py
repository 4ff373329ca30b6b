"""Share of each model's work that no strategy splits, by the number of ranks along a mesh axis.

Work is counted by the rules, in floating-point operations. Most of the rest is in dimensions that
the axis does not divide: see docs/decisions/0011-padding-of-uneven-dimensions.md.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import zoo

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.sharding.rule.strategies import Pads, strategies
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["unsplit_share"]


def unsplit_share(graph: Graph, ranks: int) -> float:
    """Return the share of the work, 0 to 1, of operators that cannot be split ``ranks`` ways."""
    rules = [n.rule for n in graph.nodes if isinstance(n, Op) and not n.constant]
    left = sum(_work(rule) for rule in rules if not _splits(rule, Mesh((ranks,)), graph.pads))
    return left / max(1.0, sum(map(_work, rules)))


def _work(rule: Rule) -> float:
    return rule.flops_per_point * math.prod(factor.size or 1 for factor in rule.factors)


def _splits(rule: Rule, mesh: Mesh, pads: Pads) -> bool:
    """Return whether a loop can be split; passing on partial sums saves no work."""
    return any(isinstance(role, int) for s in strategies(rule, mesh, pads) for role in s.roles)


def main() -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names from bench/zoo.py; default all")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4, 8])
    given = parser.parse()
    print(f"{'ranks':20}", *(f"{ranks:8}" for ranks in given.ranks))
    with tempfile.TemporaryDirectory() as folder:
        for name in given.models or zoo.NAMES:
            path = zoo.cnn_path(name) if name in zoo.CNNS else zoo.provide(name, Path(folder))
            module = driver.load(path, zoo.DIMS.get(name, {}))
            driver.advance(module, "rules")
            graph = read_graph(module)
            shares = (unsplit_share(graph, ranks) for ranks in given.ranks)
            print(f"{name:20}", *(f"{share:8.2%}" for share in shares))
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))

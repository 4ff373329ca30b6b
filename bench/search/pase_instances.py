"""Write cost tables of PaSE's benchmark graphs.

    python bench/search/pase_instances.py CHECKOUT -o DIR

CHECKOUT is a clone of https://github.com/baidu-research/PaSE, the source of the graphs and their
times; it is imported, not changed. Files are named GRAPH_pDEVICES.npz, in the format that
``tensoropt.compiler.cli.instance`` reads.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tensoropt.compiler.search.problem.problem import Floats
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["BATCH", "build_graph", "tables_of"]

BATCH = {"alexnet": 128, "inception3": 128, "resnet101": 128, "rnnlm": 64, "transformer": 64}
"""The graphs, and the batch size of each in PaSE's evaluation."""

DEVICES = (4, 8, 16, 32, 64)
_TFLOPS, _GBYTES_PER_S = 10.0, 16.0  # PaSE's own defaults
_MODULES = ("nn_ops", "graph")
_HASH_SEED = "1"


class _Graph:
    """The part of networkx that PaSE uses: vertices and edges with attributes."""

    def __init__(self) -> None:
        self.nodes: dict[int, dict[str, Any]] = {}
        self.edges: dict[tuple[int, int], dict[str, Any]] = {}

    def number_of_nodes(self) -> int:
        return len(self.nodes)

    def add_node(self, vertex: int, **attributes: Any) -> None:
        self.nodes[vertex] = attributes

    def add_edge(self, source: int, target: int, **attributes: Any) -> None:
        self.edges[source, target] = attributes

    def __contains__(self, vertex: int) -> bool:
        return vertex in self.nodes


def _stand_ins() -> dict[str, ModuleType]:
    """Return substitutes of networkx and pandas (PaSE needs old releases): costs stay arrays."""
    networkx, pandas = ModuleType("networkx"), ModuleType("pandas")
    networkx.DiGraph = _Graph  # type: ignore[attr-defined]
    pandas.Series = lambda costs, **_: costs  # type: ignore[attr-defined]
    pandas.MultiIndex = SimpleNamespace(from_product=lambda *_, **__: None)  # type: ignore[attr-defined]
    return {"networkx": networkx, "pandas": pandas}


@contextlib.contextmanager
def _imported(checkout: Path) -> Iterator[ModuleType]:
    """Import PaSE's module of graphs afresh, as its classes store the graph in class variables."""
    changed = [*_MODULES, *_stand_ins()]
    before = {name: sys.modules.pop(name, None) for name in changed}
    sys.modules.update(_stand_ins())
    sys.path.insert(0, str(checkout))
    try:
        yield importlib.import_module("graph")
    finally:
        sys.path.remove(str(checkout))
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def build_graph(checkout: Path, name: str, devices: int) -> _Graph:
    """Return PaSE's graph ``name`` (a key of BATCH), with its costs on ``devices`` devices."""
    with _imported(checkout) as pase, contextlib.redirect_stdout(io.StringIO()):
        graph: _Graph = pase.CreateGraph(name, BATCH[name], 0, devices, _TFLOPS, _GBYTES_PER_S)
    return graph


def tables_of(graph: _Graph) -> dict[str, Floats]:
    """Return the arrays of an instance file: times are PaSE's, memory is estimated."""
    domain = [len(node["op"].dom_configs) for node in graph.nodes.values()]
    edges = sorted(graph.edges)
    arrays: dict[str, Any] = {"domain": np.array(domain), "edges": np.array(edges)}
    for vertex, node in graph.nodes.items():
        arrays[f"time_{vertex}"] = np.broadcast_to(np.float64(node["costs"]), domain[vertex])
        arrays[f"memory_{vertex}"] = _memory_bytes(node["op"])
    for index, (a, b) in enumerate(edges):
        arrays[f"edge_{index}"] = graph.edges[a, b]["costs"].reshape(domain[a], domain[b])
    return arrays


def _memory_bytes(op: Any) -> Floats:
    """Return four bytes per output and twelve per weight, by local shapes of configurations.

    PaSE does not name weights. Loops over m, n, k with an input m x k and an output m x n have (m n
    k)^2 / (m k m n) weights, which is assumed for every op with more loops than dimensions.
    """
    inputs = _volume(op.in_tsrs, op.in_tsr_configs)
    outputs = _volume(op.out_tsrs, op.out_tsr_configs)
    if len(op.dom) <= len(op.out_tsrs[0]):
        return 4 * outputs
    loops = _volume([op.dom], [op.dom_configs])
    return 4 * outputs + 12 * loops**2 / (inputs * outputs)


def _volume(shapes: Sequence[Sequence[int]], splits: Sequence[Any]) -> Floats:
    """Return the entries per device of all tensors together, for each configuration."""
    parts = (np.prod(np.array(s) / split, axis=1) for s, split in zip(shapes, splits, strict=True))
    return np.sum(np.array(list(parts)), axis=0)


def _fix_hashes() -> None:
    """Restart with fixed hashes: PaSE orders dimensions by the hashes of their names."""
    if os.environ.get("PYTHONHASHSEED") != _HASH_SEED:
        environment = {**os.environ, "PYTHONHASHSEED": _HASH_SEED}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def main() -> None:
    """Write the files, and print a line for each."""
    parser = Parser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="a clone of baidu-research/PaSE")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--devices", type=int, nargs="+", default=DEVICES)
    parser.add_argument("--graphs", nargs="+", choices=BATCH, default=list(BATCH))
    arguments = parser.parse()
    _fix_hashes()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.graphs:
        for devices in arguments.devices:
            arrays = tables_of(build_graph(arguments.checkout, name, devices))
            path = arguments.output / f"{name}_p{devices}.npz"
            np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
            print(f"{path}: {len(arrays['domain'])} nodes, {len(arrays['edges'])} edges")


if __name__ == "__main__":
    sys.exit(run_command(main))

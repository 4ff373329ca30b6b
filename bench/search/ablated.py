"""Measurements of one version of the search for ``bench/search/ablation.py``: its worker.

``python -m search.ablated FOLDER`` searches the cases of :data:`CASES` with a module in FOLDER,
and prints a line of JSON for each. The search has one thread, and its clocks count the time of the
processor, so that a busy machine changes little.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.layout.mesh import factorisations, parse_mesh
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier import anytime, clock, search
from tensoropt.compiler.search.frontier.options import SearchOptions
from tensoropt.compiler.search.frontier.steps import read_graphs
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["CASES", "Case", "Found", "bounds_of"]

LEFT_OUT = 1.0
"""Stands for the bound of a mesh that was not reached in time."""


@dataclass(frozen=True)
class Case:
    """A model of the catalogue or a small trained one, or a training step of it.

    ``meshes`` are searched, or all meshes of a number of devices with up to ``axes`` axes.
    """

    model: str
    meshes: tuple[str, ...] | int
    device: str = "h100"
    sizes: Mapping[str, Any] = field(default_factory=dict)
    trains: bool = False
    epsilon: float = 0.05
    axes: int = 2

    def list_meshes(self) -> list[Mesh]:
        """Return the meshes to search."""
        if isinstance(self.meshes, tuple):
            return [parse_mesh(mesh) for mesh in self.meshes]
        return list(factorisations(self.meshes, self.axes))


CASES: Mapping[str, Case] = {
    "alexnet": Case("alexnet", 8, epsilon=0.0),
    "alexnet-deep": Case("alexnet", 8, axes=3),
    "inception": Case("inception_v3", 8),
    "resnet152": Case("resnet152", 8),
    "translation": Case("transformer_big", 4),
    "translation-deep": Case("transformer_base", ("2x2x2",)),
    "bert": Case("bert_large", 8),
    "llama": Case("llama3_8b", 8),
    "llama-64": Case("llama3_8b", ("64", "8x8")),
    "mixtral": Case("mixtral_8x7b", 8, "h200"),
    "gpt2-small": Case("gpt2", 4, "cpu"),
    "llama-small": Case("llama", ("4x2",), "cpu"),
    "train-cnn": Case("cnn", 2, "cpu", trains=True),
    "train-gpt2": Case("gpt2", 4, "cpu", trains=True),
    "train-gpt3": Case("gpt3_13b", ("4x2",), sizes={"layers": 4}, trains=True),
    "train-llama": Case("llama3_8b", ("4x4",), sizes={"layers": 4}, trains=True),
    "train-vgg": Case("vgg16", 4, trains=True),
    "llama-64-deep": Case("llama3_8b", 64, axes=3),
    "translation-16-deep": Case("transformer_big", 16, axes=3),
    "bert-deep": Case("bert_large", ("2x2x2", "2x2x4"), epsilon=0.02),
}


@dataclass(frozen=True)
class Found:
    """The answer to a case: processor seconds, the mean bound of its meshes, its ends."""

    case: str
    cpu_s: float
    bound: float
    fastest_s: float
    leanest_bytes: float


def bounds_of(one: anytime.Anytime) -> list[float]:
    """Return the bound of each candidate."""
    gaps = dict(zip(one.searched, one.gaps, strict=True))
    found = [gaps.get(candidate) for candidate in one.candidates]
    return [LEFT_OUT if gap is None or math.isinf(gap) else gap for gap in found]


def _measure(name: str, folder: Path, seconds: float) -> Found:
    case, made = CASES[name], []

    def make(*given: Any) -> anytime.Anytime:
        made.append(anytime.Anytime(*given))
        return made[-1]

    graphs = read_graphs(driver.load(folder / f"{name}.mlir", {}))
    # A clock without wall time: it stops once the search has used its processor time.
    options = SearchOptions(
        epsilon=case.epsilon, time_limit_s=1e-9, processor_s=seconds, must_answer=True
    )
    search.Anytime = make  # type: ignore[misc,assignment]
    begun_s = time.process_time()
    found = search.search_graphs(graphs, case.list_meshes(), load_device(case.device), options)
    spent_s = time.process_time() - begun_s
    bounds = bounds_of(made[0])
    ends = [(point.time_s, point.memory_bytes) for point in found.points]
    times, sizes = zip(*ends, strict=True)
    return Found(name, spent_s, sum(bounds) / len(bounds), min(times), min(sizes))


def main() -> None:
    """Measure each case in its turn; ``FOLDER SECONDS CASE ...`` are the arguments."""
    folder, seconds, names = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    time.monotonic = time.process_time
    clock.BUSY = math.inf
    anytime.solve_frontier = partial(anytime.solve_frontier, threads=1)
    for name in names:
        try:
            print(json.dumps(asdict(_measure(name, folder, seconds))), flush=True)
        except Exception as error:  # a switch may break a case: the table says so
            print(json.dumps({"case": name, "failed": repr(error)}), flush=True)


if __name__ == "__main__":
    main()

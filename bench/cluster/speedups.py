"""Step times of training jobs by number of devices, from our frontiers, for schedulers.

    python bench/cluster/speedups.py --write                            all of it, into speedups.csv
    python bench/cluster/speedups.py resnet50 --device h200 --most 4    some of it, printed

A row is the fastest step on a number of devices that fits nine tenths of a device's memory, found
as by `tensoropt-opt --train --objective profile --memory`, on one mesh for each count: a node, or
nodes of eight. It also has the memory of the data-parallel step without recomputation, the only
option of a job of replicas. A count on which nothing fits has no row. The step is AdamW on a cross
entropy. Takes half an hour on two cores.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from search_graphs import prepare_model, training_spec

from cluster.profiles import TABLE
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning import objectives
from tensoropt.compiler.planning.request import Request, device_counts
from tensoropt.compiler.search.frontier.points import fastest, leanest
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.search.frontier.steps import Graphs, read_graphs
from tensoropt.compiler.training.alternatives import Alternative
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["MODELS", "SHARE", "Model", "Row", "rows"]

SHARE = 0.9
"""Share of a device's memory: ONNX Runtime needs some in addition to a plan's prediction."""

_NODE = 8
_MOST = 64


@dataclass(frozen=True)
class Model:
    """A model of the catalogue of `bench/graphs`, with the batch of all its devices together."""

    name: str
    batch: int
    sizes: Mapping[str, Any] = field(default_factory=dict)
    precision: str = "float32"


_BERT_BASE = {"layers": 12, "width": 768, "heads": 12, "sequence": 128}
_GPT2 = {"layers": 12, "width": 768, "heads": 12, "sequence": 1024, "dtype": "float32"}
_GPT_XL = {"layers": 24, "width": 2048, "heads": 16, "sequence": 2048, "dtype": "float32"}

MODELS: Mapping[str, Mapping[str, Model]] = {
    "gtx1080ti": {
        "alexnet": Model("alexnet", 256),
        "vgg16": Model("vgg16", 64),
        "resnet50": Model("resnet152", 128, {"layers": 50}),
        "inception_v3": Model("inception_v3", 64),
        "transformer": Model("transformer_base", 64),
        "bert_base": Model("bert_large", 128, _BERT_BASE),
        "bert_large": Model("bert_large", 16),
        "gpt2": Model("gpt3_13b", 16, _GPT2),
    },
    "h200": {
        "alexnet": Model("alexnet", 2048),
        "vgg16": Model("vgg16", 512),
        "resnet50": Model("resnet152", 1024, {"layers": 50}, "bfloat16"),
        "inception_v3": Model("inception_v3", 512),
        "transformer": Model("transformer_base", 512, {}, "bfloat16"),
        "bert_base": Model("bert_large", 1024, _BERT_BASE, "bfloat16"),
        "bert_large": Model("bert_large", 128, {}, "bfloat16"),
        "gpt2": Model("gpt3_13b", 64, _GPT2, "bfloat16"),
        "gpt_xl": Model("gpt3_13b", 32, _GPT_XL, "bfloat16"),
    },
}
"""Models by device. Batches are large enough for one job to use a device of that kind well."""


@dataclass(frozen=True)
class Row:
    """A line of the table; bytes are per device."""

    device: str
    model: str
    devices: int
    step_s: float
    memory_bytes: int
    replicas_bytes: int
    replicas_fit: str


def rows(device: str, name: str, most: int = _MOST) -> Iterator[Row]:
    """Yield the rows of a model for 1, 2, 4, ... up to ``most`` devices."""
    model = MODELS[device][name]
    module = prepare_model(model.name, {**model.sizes, "batch": model.batch})
    spec = training_spec(precision=model.precision)
    driver.train(module, BuildTrainingStepPass.from_spec(spec, "auto"))
    graphs = read_graphs(module)
    limit = SHARE * Request(device=device).description.memory_capacity_bytes
    for count in device_counts(most):
        mesh = str(count) if count <= _NODE else f"{count // _NODE}x{_NODE}"
        request = Request(mesh=mesh, device=device, epsilon=0.05)
        best = _fastest_fit(graphs, request, limit)
        if best is not None:
            replicas = _replicas(graphs, request).memory_bytes
            fit = "yes" if replicas <= limit else "no"
            step_s = float(f"{best.time_s:.6g}")
            yield Row(device, name, count, step_s, best.memory_bytes, replicas, fit)


def _fastest_fit(graphs: Graphs, request: Request, limit: float) -> FrontierPoint | None:
    """Return the fastest point that fits, first by the extremes: they are exact and quick."""
    brief = Request(mesh=request.mesh, device=request.device, epsilon=1.0)
    extremes = objectives.frontier(graphs, brief).points
    if leanest(extremes).memory_bytes > limit:
        return None
    if fastest(extremes).memory_bytes <= limit:
        return fastest(extremes)
    points = objectives.frontier(graphs, request).points
    return fastest([point for point in points if point.memory_bytes <= limit])


def _replicas(graphs: Graphs, request: Request) -> FrontierPoint:
    flat = Request(mesh=request.mesh, device=request.device, search="data-parallel")
    way = Alternative("none")
    return objectives.frontier({way: graphs[way]}, flat).points[0]


def _write(file: TextIO, chosen: Sequence[tuple[str, str]], most: int) -> None:
    table = csv.DictWriter(file, [held.name for held in fields(Row)], lineterminator="\n")
    table.writeheader()
    for device, name in chosen:
        for row in rows(device, name, most):
            table.writerow(asdict(row))
            file.flush()


def main() -> None:
    """Print or write the table."""
    given = _parser().parse()
    chosen = [
        (device, name)
        for device, models in MODELS.items()
        for name in models
        if given.device in (None, device) and (not given.models or name in given.models)
    ]
    if not given.write:
        _write(sys.stdout, chosen, given.most)
        return
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        _write(file, chosen, given.most)


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", help="default all")
    parser.add_argument("--device", choices=MODELS)
    parser.add_argument("--most", type=int, default=_MOST, help="devices of the largest row")
    parser.add_argument("--write", action="store_true", help="into speedups.csv")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))

"""Changes of the fastest plan by measured costs of GPUs.

    python bench/accuracy/gpu_choices.py            12 models on 2, 4 and 8 GPUs of 8 kinds
    python bench/accuracy/gpu_choices.py --models bert --gpus h100
    python bench/accuracy/gpu_choices.py --write    into docs/benchmarks.md too

Each model is searched twice: with the description of the GPU, and with its data sheet alone. The
plan of the data sheet is then costed with the description. It counts as another plan if it takes
over 0.1% longer than the plan that the description finds. Takes 15 minutes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.builder import Builder
from graphs.clip import Clip
from search_graphs import model_graph, training_graph
from sections import write_section

from accuracy.gpu_costs import GPUS
from accuracy.gpu_serving import GPT_OSS, LLAMA
from tensoropt.compiler.api.model import Model
from tensoropt.compiler.cost.device import Device, description_text, device_of, load_device
from tensoropt.compiler.layout.mesh import factorisations
from tensoropt.compiler.program.evaluate import evaluator_of
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.search.frontier.options import SearchOptions
from tensoropt.compiler.search.frontier.points import fastest
from tensoropt.compiler.search.frontier.search import FrontierPoint, search_graphs
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.compiler.training.alternatives import INFERENCE
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["Change", "by_data_sheet"]

COUNTS = (2, 4, 8)
_OTHER = 1e-3  # relative difference in time from which a plan is another one
_FITTED = "# Fitted to measurements"
_TEXT = """\
## Fastest plans by data sheets and by measured costs

`make bench-gpu-choices ARGS=--write`: how often the fastest plan of a model changes if a GPU is
described by measured costs instead of its data sheet, and how much longer the plan of the data
sheet then takes, by the measured costs. A plan counts as another one if it takes over 0.1% longer.
All times are predictions; each model is planned for 2, 4 and 8 GPUs of one node.
"""


def _built(builder: Builder, **dims: int) -> Graph:
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        (graph,) = Model(builder.save(Path(folder)), dims).program(None).graphs.values()
    return graph


_BFLOAT16: Any = {"dtype": "bfloat16"}
_FLOAT16: Any = {"dtype": "float16"}
MODELS: Mapping[str, Callable[[], Graph]] = {
    "llama3_8b, decoding 8": lambda: _built(
        LLAMA.build("llama3_8b"), batch=8, sequence=1, past=1280, total=1280
    ),
    "llama3_8b, prompt of 2,048": lambda: model_graph(
        "llama3_8b", layers=8, batch=1, sequence=2048
    ),
    "gpt-oss-20b, decoding 32": lambda: _built(
        GPT_OSS.build("gpt_oss_20b"), batch=32, sequence=1, past=1024, total=1024
    ),
    "mixtral_8x7b, 4 x 1,024": lambda: model_graph(
        "mixtral_8x7b", layers=4, batch=4, sequence=1024
    ),
    "bert_large, 16 x 384": lambda: model_graph("bert_large", batch=16, sequence=384, **_FLOAT16),
    "CLIP, 32": lambda: _built(Clip(batch=32, dtype="float16").build("clip")),
    "vgg16, 32": lambda: model_graph("vgg16", batch=32),
    "inception_v3, 32": lambda: model_graph("inception_v3", batch=32),
    "gpt3_13b, training 8 x 2,048": lambda: training_graph(
        "gpt3_13b", layers=4, batch=8, sequence=2048, **_BFLOAT16
    ),
    "llama3_8b, training 8 x 2,048": lambda: training_graph(
        "llama3_8b", layers=4, batch=8, sequence=2048, **_BFLOAT16
    ),
    "bert_large, training 32 x 384": lambda: training_graph(
        "bert_large", layers=8, batch=32, sequence=384
    ),
    "wrn50_2, training 64": lambda: training_graph("wrn50_2", batch=64),
}
"""Large models have fewer, equal layers; they change the time of a search, not its choices."""


@dataclass(frozen=True)
class Change:
    """The plans of one case: the time of the old choice and of the new one, by measured costs."""

    model: str
    gpu: str
    count: int
    old_s: float
    new_s: float

    @property
    def slowdown(self) -> float:
        """The relative excess time of the old choice, 0 if it is the faster one."""
        return max(self.old_s / self.new_s - 1, 0.0)

    @property
    def is_other(self) -> bool:
        return self.slowdown > _OTHER


def by_data_sheet(name: str) -> Device:
    """Return an included device without the tables that were fitted to measurements."""
    text, found, _ = description_text(name).partition(_FITTED)
    if not found:
        raise ValueError(f"{name}: expected tables fitted to measurements, got: none")
    return replace(device_of(text, name), kernels={})  # attention has times of its own


def _planned(graph: Graph, count: int, device: Device, search_s: float) -> FrontierPoint:
    """Return the fastest plan found in ``search_s`` seconds, of processor time if they are more."""
    options = SearchOptions(
        epsilon=0.01, resolution=0.01, time_limit_s=search_s, processor_s=search_s, must_answer=True
    )
    return fastest(search_graphs({INFERENCE: graph}, factorisations(count), device, options).points)


def _time_s(point: FrontierPoint, graph: Graph, device: Device) -> float:
    """Return the time of a plan by the costs of another description."""
    tables = mesh_tables(graph, Mesh(point.mesh), device)
    return evaluator_of(tables).emitted(point.assignment).time_s


def changes(
    models: Sequence[str], gpus: Sequence[str], counts: Sequence[int], search_s: float
) -> Iterator[Change]:
    """Yield the change of each case."""
    for model in models:
        graph = MODELS[model]()
        for gpu in gpus:
            sheet, measured = by_data_sheet(gpu), load_device(gpu)
            for count in counts:
                old = _planned(graph, count, sheet, search_s)
                new = _planned(graph, count, measured, search_s)
                yield Change(model, gpu, count, _time_s(old, graph, measured), new.time_s)


def _figures(own: Sequence[Change]) -> str:
    others = [change for change in own if change.is_other]
    slower = [change.slowdown for change in others]
    median = f"{statistics.median(slower):.1%}" if slower else "-"
    return f"{len(others)} of {len(own)} | {median} | {max(slower, default=0.0):.1%}"


def table(found: Sequence[Change]) -> Iterator[str]:
    """Yield the frequency of other plans, and the slowdown of the old ones, by group of cases."""
    yield "| cases | another plan | old one slower: median | largest |"
    yield "|---|---:|---:|---:|"
    groups: dict[str, list[Change]] = {"all": list(found)}
    for change in found:
        for name in (change.model, change.gpu, f"{change.count} GPUs"):
            groups.setdefault(name, []).append(change)
    for name, own in groups.items():
        yield f"| {name} | {_figures(own)} |"


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", metavar="WORD", help="models with one of these")
    parser.add_argument("--gpus", nargs="+", choices=GPUS, default=[*GPUS])
    parser.add_argument("--counts", nargs="+", type=int, default=COUNTS, help="numbers of GPUs")
    parser.add_argument("--search-time", type=float, default=3.0, help="seconds of each search")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    given = parser.parse()
    words = given.models or [""]
    models = [name for name in MODELS if any(word in name for word in words)]
    found = []
    for change in changes(models, given.gpus, given.counts, given.search_time):
        found.append(change)
        print(
            f"{change.model} on {change.count} {change.gpu}: {1e3 * change.new_s:.3f} ms, "
            f"old choice {change.slowdown:+.2%}",
            file=sys.stderr,
        )
    text = "\n".join(table(found))
    print(text)
    if given.write:
        write_section("gpu_choices", f"{_TEXT}\n{text}")


if __name__ == "__main__":
    sys.exit(run_command(main))

"""Predicted steps of pipelines on clusters of GPUs, next to published measurements.

    python bench/stages/clusters.py gpu_training.json            print the tables
    python bench/stages/clusters.py gpu_training.json --write    into docs/benchmarks.md too

The file has the time and the peak memory of training steps that Sailor measured (github.com/eth-
easl/sailor, SOSP'25): float32 in PyTorch and DeepSpeed, Megatron's splits in a node, 1F1B between
nodes. `layered.py` predicts the same steps. A device is a data sheet or an included description,
and no layer was measured. A stage of unlike replicas takes the time of the slowest.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from accuracy.step_time import errors_of, rank_correlation
from graphs.gpt import Gpt
from sections import print_comparison

from stages.layered import Degrees, Prediction, predict
from stages.systems import PYTORCH_BYTES, System
from tensoropt.compiler.cost.device import Device, Link, load_device
from tensoropt.runtime.support.flags import run_command

__all__ = ["Run", "best_configurations", "predicted", "runs_of"]

_MODELS = {
    32: Gpt(width=2560, heads=20, vocabulary=128256, sequence=2048, dropout=0.1),
    24: Gpt(width=1024, heads=16, vocabulary=50272, sequence=2048),
}
"""GPT-Neo-2.7B and OPT-350M by their layers: the file names one run of 24 layers GPT-Neo. The
script that ran GPT-Neo states its heads (bench/accuracy/gpu_layers.py)."""
_ETHERNET_BYTES_PER_S = 0.94 * 1e9 / 8  # of a port of 1 Gb/s with TCP
_RANKS = 8  # of a node with RTX cards, which share its port


def _turing(name: str, flop_per_s: float, memory_bytes_per_s: float, links: float) -> Device:
    """Return a card of a node with one port; ``links`` is the bandwidth between its cards."""
    return replace(
        load_device("gtx1080ti"),
        name=name,
        peaks=(("float32", flop_per_s),),
        memory_bandwidth_bytes_per_s=memory_bytes_per_s,
        devices_per_node=_RANKS,
        intra_node=Link(1e-5, links),
        network=Link(5e-5, _ETHERNET_BYTES_PER_S / _RANKS),
    )


DEVICES: Mapping[str, Device] = {
    # GH200 data sheet (2023): H100's chip with 96 GB at 4 TB/s, nine tenths of it reached. The
    # links are the peaks that the file has for 4 GPUs in a node and between nodes.
    "GH-96": replace(
        load_device("h100"),
        name="gh200",
        memory_bandwidth_bytes_per_s=3.6e12,
        memory_capacity_bytes=96_000_000_000,
        devices_per_node=4,
        intra_node=Link(2e-6, 250e9),
        network=Link(6e-6, 22.9e9),
        collectives={},
    ),
    # Data sheets; links in a node are the file's peaks for 8 cards.
    "RTX-3090": _turing("RTX-3090", 35.6e12, 0.9 * 936e9, 5.3e9),
    "RTX-2080": _turing("RTX-2080", 10.1e12, 0.9 * 448e9, 24.6e9),
    "Titan-RTX": _turing("Titan-RTX", 16.3e12, 0.9 * 672e9, 24.3e9),
}
_SMALL_BYTES = 3_000_000_000  # of PyTorch on an RTX card, as `PYTORCH_BYTES`
_SYSTEM = System(
    attention="operators", fuses=False, precision="float32", recompute="none", parameter_bytes=4,
    gradient_bytes=4, optimizer_bytes=8, waits_for_sends=True,
)  # fmt: skip
_TEXT = """\
## Pipelines on clusters, next to published measurements

`make bench-stages-clusters ARGS="gpu_training.json --write"`: time and peak memory of training
steps that [Sailor](https://github.com/eth-easl/sailor) measured, on GH200 with 4 GPUs in a node and
on nodes of eight RTX cards, and the same steps predicted. GH200 is `h100` with the memory of its
data sheet and the links that Sailor measured; RTX cards are data sheets. One kind of constant was
fitted to these steps: PyTorch's memory that is not of tensors, 7.5 GB on GH200 and 3 GB on RTX
cards. The port of a node with RTX cards is Gigabit Ethernet, from the time of its gradients.

A row named GPT-Neo with 24 layers is OPT-350M here: that is its number of layers, and GPT-Neo would
need twice the memory that was measured.
"""


@dataclass(frozen=True)
class Run:
    """A published run: the GPUs of the replicas of each stage, and the measured step."""

    model: Gpt
    gpus: tuple[tuple[str, ...], ...]
    degrees: Degrees
    step_s: float
    peak_bytes: int

    @property
    def title(self) -> str:
        """The model, the GPUs and the layers of stages, as the file counts them."""
        name = "GPT-Neo" if self.model == _MODELS[32] else "OPT"
        kinds = "+".join(dict.fromkeys(gpu for own in self.gpus for gpu in own))
        layers = [*self.degrees.layers]
        layers[0] += 1
        layers[-1] += 1
        return f"{name} | {kinds} | {', '.join(map(str, layers))}"

    @property
    def is_uniform(self) -> bool:
        """True on GH200, which no run mixes with other GPUs."""
        return self.gpus[0][0] == "GH-96"

    @property
    def ranks(self) -> int:
        return self.degrees.tensor * self.degrees.data * self.degrees.stages


def runs_of(published: Mapping[str, Any]) -> list[Run]:
    """Return the runs of the published file."""
    return [_run(row) for row in published["runs"]]


def _run(row: Mapping[str, Any]) -> Run:
    if "stages" in row:
        layers = [stage["layers"] for stage in row["stages"]]
        replicas = [stage["replicas"] for stage in row["stages"]]
        gpus = tuple(tuple(own["gpu"] for own in stage) for stage in replicas)
        tensor, data = replicas[0][0]["tensor_parallel"], len(replicas[0])
    else:
        layers = [*row["layers_of_stages"]]
        gpus = ((row["gpu"],),) * len(layers)
        tensor, data = row["tensor_parallel"], row["data_parallel"]
    layers[0] -= 1
    layers[-1] -= 1
    count = row["global_batch"] // (data * row["micro_batch"])
    degrees = Degrees(tensor, data, len(layers), tuple(layers), row["micro_batch"], count)
    return Run(_MODELS[sum(layers)], gpus, degrees, row["step_s"], row["peak_bytes"])


def predicted(run: Run) -> Prediction:
    """Return the prediction of a published run."""
    rest_bytes = PYTORCH_BYTES if run.is_uniform else _SMALL_BYTES
    devices = [[DEVICES[gpu] for gpu in own] for own in run.gpus]
    return predict(run.model, replace(_SYSTEM, rest_bytes=rest_bytes), run.degrees, devices)


def best_configurations(
    runs: Sequence[Run], found: Sequence[Prediction]
) -> Iterator[tuple[int, Run, Run]]:
    """Yield the fastest measured run of each number of GPUs, and the one that was predicted.

    Runs of other models and other batches on the same GPUs are not compared.
    """
    kinds: dict[tuple[object, ...], list[int]] = {}
    for number, run in enumerate(runs):
        batch = run.degrees.data * run.degrees.micro_batch * run.degrees.micro_batches
        kinds.setdefault((run.ranks, run.model, batch), []).append(number)
    for (ranks, *_), numbers in sorted(kinds.items(), key=lambda own: own[0][0]):
        if len(numbers) > 1:
            measured = min(numbers, key=lambda number: runs[number].step_s)
            chosen = min(numbers, key=lambda number: found[number].time_s)
            yield ranks, runs[measured], runs[chosen]


def _table(runs: Sequence[Run], found: Sequence[Prediction]) -> Iterator[str]:
    yield "| model | GPU | layers | GPUs | micro-batch | time | predicted | memory | predicted |"
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|"
    for run, own in zip(runs, found, strict=True):
        time = f"{own.time_s:.2f} s ({own.time_s / run.step_s:.2f})"
        memory = f"{own.memory_bytes / 1e9:.1f} GB ({own.memory_bytes / run.peak_bytes:.2f})"
        sizes = f"{run.ranks} | {run.degrees.micro_batch} | {run.step_s:.2f} s"
        yield f"| {run.title} | {sizes} | {time} | {run.peak_bytes / 1e9:.1f} GB | {memory} |"


def _summary(runs: Sequence[Run], found: Sequence[Prediction]) -> Iterator[str]:
    yield "| runs | | median error of time | rank correlation | median error of memory |"
    yield "|---|---:|---:|---:|---:|"
    for name, kinds in {"all": {True, False}, "GH200": {True}, "RTX": {False}}.items():
        every = zip(runs, found, strict=True)
        pairs = [(run, own) for run, own in every if run.is_uniform in kinds]
        measured, own = [run.step_s for run, _ in pairs], [step.time_s for _, step in pairs]
        sizes = [run.peak_bytes for run, _ in pairs], [step.memory_bytes for _, step in pairs]
        time, memory = (statistics.median(errors_of(b, a)) for a, b in ((measured, own), sizes))
        rank = rank_correlation(own, measured)
        yield f"| {name} | {len(pairs)} | {time:.1%} | {rank:.3f} | {memory:.1%} |"


def _text(path: Path) -> str:
    runs = runs_of(json.loads(path.read_text(encoding="utf-8")))
    found = [predicted(run) for run in runs]
    best = [*best_configurations(runs, found)]
    hits = sum(measured == chosen for _, measured, chosen in best)
    parts = (
        "\n".join(_summary(runs, found)),
        "\n".join(_table(runs, found)),
        f"The fastest measured run of a number of GPUs is also the fastest predicted one in {hits} "
        f"of {len(best)} cases with several runs of the same batch.",
    )
    return "\n\n".join(parts)


if __name__ == "__main__":
    what = "gpu_training.json, extracted from Sailor"
    sys.exit(run_command(lambda: print_comparison(__doc__, what, "stages_clusters", _TEXT, _text)))

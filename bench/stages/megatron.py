"""Predicted times of Megatron-LM's published training steps, with its own pipelines.

    python bench/stages/megatron.py              20 steps of two papers' tables
    python bench/stages/megatron.py --only a100  those on A100 or on h100
    python bench/stages/megatron.py --write      docs/benchmarks.md

A model of two layers is planned as Megatron splits it (`--search expert`) on the ranks of one stage
with one micro-batch. Its layers, repeated, are the chunks of the schedule that was run: 1F1B, or
interleaved if the table names virtual stages. Steps on A100 are from the table of "Efficient
Large-Scale Language Model Training on GPU Clusters" (SC'21: float16, everything recomputed), those
on H100 from the table of Megatron-Core 0.8 (bfloat16, nothing recomputed), which does not name
micro-batches: they have one sequence here. Megatron's fused attention has no counterpart in
training with ONNX Runtime, so the table has both: our operators, and one kernel (forward as
measured in tables, backward 2.5 times as long, as in FlashAttention-2).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.gpt import Gpt
from sections import write_section

import tensoropt as to
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.stages.families import FAMILIES, generate
from tensoropt.runtime.stages.execution import ChunkCost, execute
from tensoropt.runtime.support.flags import Parser, run_command

_LAYERS = 2  # of the model that is planned
_HALF_BYTES = 2
_BACKWARD = 2.5  # of the forward pass of fused attention
_TEXT = """\
## Steps of Megatron-LM's tables, with pipelines

`python bench/stages/megatron.py --write`: seconds of a training step, as published and as
predicted for Megatron's splits, micro-batches and schedule by the descriptions `a100` and `h100`;
in brackets predicted / published. "Fused" replaces our operators of attention by one kernel, which
Megatron runs on H100; on A100 its kernels are between the two. No constant was fitted to these
steps.
"""


@dataclass(frozen=True)
class Row:
    """A published step: degrees of tensor, pipeline and data parallelism, and batches."""

    name: str
    width: int
    layers: int
    heads: int
    tensor: int
    stages: int
    chunks: int
    data: int
    micro_batch: int
    batch: int
    step_s: float

    @property
    def micro_batches(self) -> int:
        return self.batch // (self.data * self.micro_batch)


@dataclass(frozen=True)
class Setting:
    """The settings of all rows of a table."""

    device: str
    sequence: int
    vocabulary: int
    precision: str
    recompute: str
    rows: Sequence[Row]


SETTINGS = (
    Setting("a100", 2048, 51200, "float16", "blocks", (
        Row("1.7B", 2304, 24, 24, 1, 1, 1, 32, 16, 512, 3.53),
        Row("3.6B", 3072, 30, 32, 2, 1, 1, 32, 16, 512, 3.70),
        Row("7.5B", 4096, 36, 32, 4, 1, 1, 32, 16, 512, 3.70),
        Row("18B", 6144, 40, 48, 8, 1, 1, 32, 8, 1024, 9.40),
        Row("39B", 8192, 48, 64, 8, 2, 1, 32, 4, 1536, 14.45),
        Row("76B", 10240, 60, 80, 8, 4, 3, 32, 2, 1792, 16.06),
        Row("145B", 12288, 80, 96, 8, 8, 2, 24, 2, 2304, 24.82),
        Row("310B", 16384, 96, 128, 8, 16, 2, 15, 1, 2160, 37.61),
        Row("530B", 20480, 105, 128, 8, 35, 3, 9, 1, 2520, 54.08),
        Row("1T", 25600, 128, 160, 8, 64, 1, 6, 1, 3072, 102.6),
    )),
    Setting("h100", 4096, 131072, "bfloat16", "none", (
        Row("1.7B", 2048, 24, 16, 1, 1, 1, 48, 1, 192, 0.45),
        Row("7.1B", 4096, 30, 32, 2, 1, 1, 48, 1, 192, 0.80),
        Row("16B", 6144, 32, 48, 4, 1, 1, 48, 1, 192, 0.85),
        Row("32B", 7168, 48, 56, 8, 1, 1, 48, 1, 192, 0.89),
        Row("70B", 8192, 84, 64, 8, 2, 1, 48, 1, 384, 2.18),
        Row("119B", 10240, 92, 80, 8, 4, 1, 48, 1, 768, 3.65),
        Row("177B", 12288, 96, 96, 8, 6, 1, 48, 1, 1152, 5.26),
        Row("314B", 16384, 96, 128, 8, 8, 1, 48, 1, 1536, 8.40),
        Row("462B", 18432, 112, 144, 8, 16, 1, 48, 1, 3072, 12.72),
    )),
)  # fmt: skip


def predicted_s(row: Row, setting: Setting, folder: Path) -> tuple[float, float]:
    """Return the time of the step with our attention, and with fused attention."""
    model = Gpt(
        layers=_LAYERS,
        width=row.width,
        heads=row.heads,
        vocabulary=setting.vocabulary,
        sequence=setting.sequence,
        batch=row.data * row.micro_batch,
        dtype="float16",
    )
    path = model.build(row.name).save(folder)
    training = to.Training(
        loss="softmax-cross-entropy:scores,labels",
        precision=setting.precision,
        recompute=setting.recompute,
    )
    (point,) = to.load(path).frontier(
        mesh=(row.data, row.tensor),
        device=setting.device,
        train=training,
        search="expert",
        memory="64TiB",
    )[:1]
    parts: Counter[tuple[str, str]] = Counter()
    core: Counter[str] = Counter()
    for entry in point.explain().data.timeline:
        layer = "layer" if entry.layer.startswith("layer") else entry.layer
        part = "once" if entry.phase == "update" else entry.phase
        if entry.kind == "collective" and "x" in entry.axes:  # of gradients, over the replicas
            part = "once"
        parts[layer, "backward" if part == "recompute" else part] += entry.time_s
        if _is_core(entry.name, entry.kind):
            core["forward" if entry.phase == "forward" else "backward"] += entry.time_s / _LAYERS
    for part in ("forward", "backward", "once"):
        parts["layer", part] /= _LAYERS
    own_s = _step_s(row, setting, parts)
    fused_s = _attention_s(row, setting)
    again = 0 if setting.recompute == "none" else 1
    parts["layer", "forward"] += fused_s - core["forward"]
    parts["layer", "backward"] += (_BACKWARD + again) * fused_s - core["backward"]
    return own_s, _step_s(row, setting, parts)


def _is_core(name: str, kind: str) -> bool:
    """Return whether an op of a layer is between the projections of attention."""
    outside = ("/qkv/", "/out/", "/norm/", ".qkv.", ".out.", ".norm.")
    return kind == "op" and "/attention/" in name and not any(own in name for own in outside)


def _attention_s(row: Row, setting: Setting) -> float:
    """Return the time of one kernel for the attention of a layer on one rank, forward."""
    device = load_device(setting.device)
    table = device.kernel_table("prefill", setting.precision)
    assert table is not None
    heads, size = row.heads // row.tensor, row.width // row.heads
    keys = (setting.sequence + 1) / 2
    flops = 4.0 * row.micro_batch * heads * setting.sequence * keys * size
    roofline_s = flops / device.peak_flop_per_s(setting.precision) + device.launch_overhead_s
    return table.factor((row.micro_batch * heads, 1.0, keys, float(size))) * roofline_s


def _step_s(row: Row, setting: Setting, parts: Counter[tuple[str, str]]) -> float:
    """Return the time of the step with its schedule."""
    device, count = load_device(setting.device), row.stages * row.chunks
    each = row.layers / count
    sent_bytes = row.micro_batch * setting.sequence * row.width * _HALF_BYTES / row.tensor
    sent_s = device.network.latency_s + sent_bytes / device.network.bandwidth_bytes_per_s
    costs = []
    for chunk in range(count):
        forward_s, backward_s = (each * parts["layer", part] for part in ("forward", "backward"))
        for layer, at in (("start", 0), ("end", count - 1)):
            if chunk == at:
                forward_s += parts[layer, "forward"]
                backward_s += parts[layer, "backward"]
        costs.append(ChunkCost(forward_s, backward_s, 0.0, sent_s if row.stages > 1 else 0.0))
    family = FAMILIES["1f1b"]
    if row.chunks > 1:
        family = FAMILIES["interleaved"].with_chunks(row.chunks)
    found = execute(generate(family, row.stages, row.micro_batches, costs), costs)
    once_s = each * row.chunks * parts["layer", "once"] + parts["start", "once"]
    return found.time_s + once_s


def _table(settings: Sequence[Setting], folder: Path) -> Iterator[str]:
    yield "| GPU | model | tensor, stages, chunks, data | published | ours | fused |"
    yield "|---|---|---|---|---|---|"
    for setting in settings:
        ratios = []
        for row in setting.rows:
            found = predicted_s(row, setting, folder)
            ratios.append([own / row.step_s for own in found])
            degrees = f"{row.tensor}, {row.stages}, {row.chunks}, {row.data}"
            own, fused = (f"{s:.2f} s ({s / row.step_s:.2f})" for s in found)
            model = f"{setting.device} | {row.name} | {degrees} | {row.step_s} s"
            yield f"| {model} | {own} | {fused} |"
        own, fused = np.abs(np.array(ratios) - 1).T
        within = (
            f"{np.median(e):.0%}, {np.sum(e <= 0.15)} of {len(e)} within 15%" for e in (own, fused)
        )
        yield f"| {setting.device} | median error | | | {' | '.join(within)} |"


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=[own.device for own in SETTINGS])
    parser.add_argument("--write", action="store_true", help="docs/benchmarks.md")
    given = parser.parse()
    settings = [own for own in SETTINGS if given.only in (None, own.device)]
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for line in _table(settings, Path(folder)):
            print(line, flush=True)
            lines.append(line)
    if given.write:
        write_section("megatron_stages", f"{_TEXT}\n" + "\n".join(lines))


if __name__ == "__main__":
    sys.exit(run_command(main))

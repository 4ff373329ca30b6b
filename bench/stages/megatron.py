"""Predicted times of Megatron-LM's published training steps, with its own pipelines.

    python bench/stages/megatron.py              20 steps of two papers' tables
    python bench/stages/megatron.py --only a100  those on A100 or on h100
    python bench/stages/megatron.py --write      docs/benchmarks.md

`layered.py` plans each model as Megatron splits it and executes the schedule that was run: 1F1B, or
interleaved if the table names virtual stages. Steps on A100 are from the table of "Efficient
Large-Scale Language Model Training on GPU Clusters" (SC'21) and, GPT-3, from Megatron-LM's page of
2021: float16, everything recomputed, dropout. Those on H100 are from the table of Megatron-Core 0.8
in bfloat16. The latter and GPT-3's do not name micro-batches: the fastest within the memory by the
same prediction count. The last column is the fastest of our schedules with the same splits within
the memory of Megatron's, by the same costs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from accuracy.step_time import errors_of
from graphs.gpt import Gpt
from sections import print_lines

from stages.layered import Degrees, Prediction, even_chunks, predict
from stages.systems import System
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.stages.families import FAMILIES, Family, fitting
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["SETTINGS", "Row", "Setting", "fastest_schedule", "predicted"]

_MICRO_BATCHES = (1, 2, 4)  # tried if the table does not name them
_GOOD = 0.15
_SLACK = 0.9
"""Other schedules could be faster by this part of 1F1B's time without its bubble: chunks may divide
the layers more evenly."""
_TEXT = """\
## Steps of Megatron-LM's tables, with pipelines

`make bench-stages ARGS=--write`: seconds of a training step, as published and as predicted for
Megatron's splits and schedule by the descriptions `a100` and `h100`; in brackets predicted /
published. *Plain* has no constant that was fitted to these steps. *Long steps* has three: products
reach 0.72 (A100) and 0.8 (H100) of their rate in the tables, which were measured alone and, on
A100, with libraries four years younger; and a step on H100 takes 0.06 s more. On H100 it also hides
collectives within a layer, except for their first part, as Megatron-Core can.
Our schedule is the fastest of our families with the same splits and micro-batches in the memory of
Megatron's, by *plain*; Megatron's own is one of them.

Properties of Megatron, not of our plans: element-wise operators that follow each other are one
kernel; on H100 attention is one kernel, gradients are exchanged during the last backward pass and
parameters gathered during the first forward pass, and replicas share moments. Our runtime exchanges
gradients after the last micro-batch ([decision 85](decisions/0085-published-pipelines.md)).
"""


@dataclass(frozen=True)
class Row:
    """A published step: degrees of tensor, pipeline and data parallelism, and batches.

    ``micro_batch`` is 0 if it is unknown.
    """

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

    def degrees(self, micro_batch: int) -> Degrees:
        layers = even_chunks(self.layers, self.stages * self.chunks)
        count = self.batch // (self.data * micro_batch)
        return Degrees(self.tensor, self.data, self.stages, layers, micro_batch, count)

    @property
    def micro_batches(self) -> Sequence[int]:
        """The sizes of micro-batches that may have been run."""
        each = self.batch // self.data
        return [self.micro_batch] if self.micro_batch else [n for n in _MICRO_BATCHES if n <= each]


@dataclass(frozen=True)
class Setting:
    """The settings of all rows of a table: the system, plain and in long steps."""

    device: str
    sequence: int
    vocabulary: int
    dropout: float
    system: System
    long: System
    rows: Sequence[Row]

    def model(self, row: Row) -> Gpt:
        return Gpt(
            width=row.width,
            heads=row.heads,
            vocabulary=self.vocabulary,
            sequence=self.sequence,
            dropout=self.dropout,
            attention_dropout=self.dropout,
        )


_SC21 = System(
    attention="operators", fuses=True, precision="float16", recompute="blocks",
    parameter_bytes=2, gradient_bytes=2, optimizer_bytes=12,
)  # fmt: skip
_CORE = System(
    attention="kernel", fuses=True, splits_sequence=True, precision="bfloat16", recompute="none",
    parameter_bytes=2, gradient_bytes=4, optimizer_bytes=12, shards_moments=True,
    hides_exchange=True,
)  # fmt: skip


SETTINGS = (
    Setting("a100", 2048, 51200, 0.1, _SC21, replace(_SC21, product_rate=0.72), (
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
        Row("GPT-3", 12288, 96, 96, 8, 16, 1, 8, 0, 1536, 32.0),
    )),
    Setting("h100", 4096, 131072, 0.0, _CORE, replace(
        _CORE, product_rate=0.8, hides_collectives=1.0, step_s=0.06
    ), (
        Row("1.7B", 2048, 24, 16, 1, 1, 1, 48, 0, 192, 0.45),
        Row("7.1B", 4096, 30, 32, 2, 1, 1, 48, 0, 192, 0.80),
        Row("16B", 6144, 32, 48, 4, 1, 1, 48, 0, 192, 0.85),
        Row("32B", 7168, 48, 56, 8, 1, 1, 48, 0, 192, 0.89),
        Row("70B", 8192, 84, 64, 8, 2, 1, 48, 0, 384, 2.18),
        Row("119B", 10240, 92, 80, 8, 4, 1, 48, 0, 768, 3.65),
        Row("177B", 12288, 96, 96, 8, 6, 1, 48, 0, 1152, 5.26),
        Row("314B", 16384, 96, 128, 8, 8, 1, 48, 0, 1536, 8.40),
        Row("462B", 18432, 112, 144, 8, 16, 1, 48, 0, 3072, 12.72),
    )),
)  # fmt: skip


def predicted(row: Row, setting: Setting, system: System) -> tuple[Degrees, Prediction]:
    """Return the predicted step; of unknown micro-batches the fastest within the memory."""
    device = load_device(setting.device)
    assert device.memory_capacity_bytes is not None
    tried = [row.degrees(size) for size in row.micro_batches]
    model, devices = setting.model(row), [[device]] * row.stages
    pairs = [(own, predict(model, system, own, devices)) for own in tried]
    fits = [pair for pair in pairs if pair[1].memory_bytes <= device.memory_capacity_bytes]
    return min(fits or pairs[:1], key=lambda pair: pair[1].time_s)


def fastest_schedule(
    row: Row,
    setting: Setting,
    degrees: Degrees,
    most: int,
    families: Mapping[str, Family] = FAMILIES,
    limit_s: float = math.inf,
) -> tuple[float, str] | None:
    """Return the time and the name of the fastest schedule in ``most`` bytes, None if none fits.

    The stages of ``degrees`` get as many layers as they can share evenly. Schedules that could not
    be faster than ``limit_s`` are left out, unless they come before 1F1B.
    """
    device, found, least_s = load_device(setting.device), [], 0.0
    stages, count = degrees.stages, degrees.micro_batches
    for name in fitting(families, stages, row.layers) if stages > 1 else ["1f1b"]:
        if least_s > limit_s:
            break
        family = families[name]
        own = replace(degrees, layers=even_chunks(row.layers, stages * family.chunks))
        step = predict(setting.model(row), setting.system, own, [[device]] * stages, family)
        if name == "1f1b":
            least_s = _SLACK * step.time_s * count / (count + stages - 1)
        if step.memory_bytes <= most:
            found.append((step.time_s, name))
    return min(found, default=None)


def _best_schedule(row: Row, setting: Setting, degrees: Degrees, most: int) -> tuple[str, float]:
    """Return our fastest schedule that takes no more memory than ``most``, and its time."""
    families = dict(FAMILIES)
    if row.chunks > 1:
        families["interleaved"] = degrees.family
    found = fastest_schedule(row, setting, degrees, most, families)
    assert found is not None, "Megatron's own schedule fits"
    time_s, name = found
    return name, time_s


def _table(settings: Sequence[Setting]) -> Iterator[str]:
    degrees = "tensor, stages, chunks, data, micro-batch"
    yield f"| GPU | model | {degrees} | published | plain | long steps | memory | our schedule |"
    yield "|---|---|---|---|---|---|---|---|"
    for setting in settings:
        plain, long = [], []
        for row in setting.rows:
            own, step = predicted(row, setting, setting.system)
            _, other = predicted(row, setting, setting.long)
            plain.append(step.time_s)
            long.append(other.time_s)
            name, best_s = _best_schedule(row, setting, own, step.memory_bytes)
            times = (f"{s:.2f} s ({s / row.step_s:.2f})" for s in (step.time_s, other.time_s))
            cells = f"{row.tensor}, {row.stages}, {row.chunks}, {row.data}, {own.micro_batch}"
            memory = f"{step.memory_bytes / 1e9:.0f} GB | {name}, {best_s:.2f} s"
            known = f"{setting.device} | {row.name} | {cells} | {row.step_s} s"
            yield f"| {known} | {' | '.join(times)} | {memory} |"
        published = [row.step_s for row in setting.rows]
        errors = f"{_figures(plain, published)} | {_figures(long, published)}"
        yield f"| {setting.device} | median error | | | {errors} | | |"


def _figures(times_s: Sequence[float], published: Sequence[float]) -> str:
    errors = np.array(errors_of(times_s, published))
    return f"{np.median(errors):.0%}, {np.sum(errors <= _GOOD)} of {len(errors)} within 15%"


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=[own.device for own in SETTINGS])
    parser.add_argument("--write", action="store_true", help="docs/benchmarks.md")
    given = parser.parse()
    lines = _table([own for own in SETTINGS if given.only in (None, own.device)])
    print_lines("megatron_stages", _TEXT, lines, writes=given.write)


if __name__ == "__main__":
    sys.exit(run_command(main))

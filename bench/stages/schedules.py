"""Predicted steps of torchtitan's and Alpa's pipelines, next to their published ones.

    python bench/stages/schedules.py            print the table
    python bench/stages/schedules.py --write    into docs/benchmarks.md too

torchtitan (benchmarks/llama3_h100_202412_torchtitan.md): Llama 3.1 405B on 512 H100 of 96 GB, 1F1B
and interleaved, float8. A batch has one micro-batch per stage. Alpa (benchmark/alpa/README.md):
GPT of 2.6B on 8 V100 of 16 GB.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.gpt import Gpt
from graphs.llama import Llama
from sections import print_section

from stages.layered import Degrees, Prediction, even_chunks, predict
from stages.systems import PYTORCH_BYTES, System
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.runtime.support.flags import run_command

__all__ = ["LLAMA_405B", "ROWS", "TITAN", "predicted"]

LLAMA_405B = Llama(layers=126, width=16384, heads=128, groups=8, inner=53248, sequence=8192)
TITAN = System(
    attention="kernel", fuses=True, splits_sequence=True, precision="bfloat16",
    recompute="blocks", parameter_bytes=2, gradient_bytes=4, optimizer_bytes=12,
    shards_moments=True, hides_exchange=True, hides_collectives=0.48,
    rest_bytes=PYTORCH_BYTES,
)  # fmt: skip
"""Asynchronous tensor parallelism hides this share on average in two pairs of torchtitan's steps,
with it and without (`accuracy/long_training.py`): 0.39 in one, 0.57 in the other."""
_ALPA = System(
    attention="operators", fuses=True, precision="float16", recompute="blocks", parameter_bytes=2,
    gradient_bytes=2, optimizer_bytes=12, shards_moments=True,
)  # fmt: skip
_ALPA_DEGREES = Degrees(2, 2, 2, even_chunks(32, 2), 4, 4)
_GPT = Gpt(width=2560, heads=32, vocabulary=51200, sequence=1024)
_TEXT = """\
## Steps of torchtitan and Alpa, with pipelines

`make bench-stages ARGS=--write`: published steps and the same steps predicted. Products of
torchtitan are in float8, ours in bfloat16, so the ratio of its two times compares the schedules.
Its gradients are exchanged while stages compute, and are whole in float32 until the last
micro-batch. Of the collectives of its asynchronous tensor parallelism, 0.48 of the time is hidden.
The memory of PyTorch is the one fitted to
[clusters](#pipelines-on-clusters-next-to-published-measurements). V100 is a data sheet,
and XLA's kernels are between the two rows: some of the element-wise operators are fused.
"""


@dataclass(frozen=True)
class Row:
    """A published step with its memory."""

    name: str
    model: Gpt | Llama
    system: System
    device: Device
    degrees: Degrees
    step_s: float
    memory_bytes: float


def _h100() -> Device:
    return replace(load_device("h100"), memory_capacity_bytes=96_000_000_000)


ROWS = (
    Row(
        "torchtitan 405B, 1F1B", LLAMA_405B, TITAN, _h100(),
        Degrees(8, 8, 8, even_chunks(126, 8), 4, 8), 41.0, 82.5 * 2**30,
    ),
    Row(
        "torchtitan 405B, interleaved", LLAMA_405B, TITAN, _h100(),
        Degrees(8, 8, 8, even_chunks(126, 16), 4, 8), 32.0, 72.7 * 2**30,
    ),
    Row("Alpa GPT 2.6B, fused", _GPT, _ALPA, load_device("v100"), _ALPA_DEGREES, 2.464, 8.745e9),
    Row(
        "Alpa GPT 2.6B, not fused", _GPT, replace(_ALPA, fuses=False), load_device("v100"),
        _ALPA_DEGREES, 2.464, 8.745e9,
    ),
)  # fmt: skip


def predicted(row: Row) -> Prediction:
    """Return the prediction of a published step."""
    return predict(row.model, row.system, row.degrees, [[row.device]] * row.degrees.stages)


def table() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "| step | time | predicted | memory | predicted |"
    yield "|---|---:|---:|---:|---:|"
    found = [predicted(row) for row in ROWS]
    for row, own in zip(ROWS, found, strict=True):
        time = f"{own.time_s:.2f} s ({own.time_s / row.step_s:.2f})"
        memory = f"{own.memory_bytes / 1e9:.1f} GB ({own.memory_bytes / row.memory_bytes:.2f})"
        published = f"{row.memory_bytes / 1e9:.1f} GB"
        yield f"| {row.name} | {row.step_s} s | {time} | {published} | {memory} |"
    (one, two, *_), (first, second, *_) = ROWS, found
    ratios = one.step_s / two.step_s, first.time_s / second.time_s
    yield "| torchtitan, 1F1B / interleaved | {:.2f} | {:.2f} | | |".format(*ratios)


if __name__ == "__main__":
    sys.exit(run_command(lambda: print_section(__doc__, "stages_schedules", _TEXT, table)))

"""Published training steps at long sequences, next to the same plans and to ours as predicted.

    python bench/accuracy/long_training.py              print the table (half an hour)
    python bench/accuracy/long_training.py 1 2 3        only some rows, by number
    python bench/accuracy/long_training.py --write      into docs/benchmarks.md too

torchtitan: benchmarks/llama3_h100_202412_torchtitan.md, asyncTP_llama3_h100_2025-06_torchtitan.md
of pytorch/torchtitan, H100 of 500 W with 96 GB at 2.4 TB/s, AdamW; commit 2887250b has the table of
the latter as text. Llama 3 405B: arXiv 2407.21783, table 4, H100 of 700 W.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.llama import Llama
from sections import print_lines
from stages.layered import Degrees, even_chunks, predict
from stages.systems import PYTORCH_BYTES, System

import tensoropt as to
from tensoropt.compiler.cost.device import description_text, device_of, load_device
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["ROWS", "Row"]

_8B = Llama()
_70B = Llama(layers=80, width=8192, heads=64, inner=28672)
_LOSS = "softmax-cross-entropy:scores,labels"
_FREEZE = "constant_*"
_405B = Llama(layers=126, width=16384, heads=128, groups=8, inner=53248)
TITAN = System(
    attention="kernel", fuses=True, splits_sequence=True, precision="bfloat16",
    recompute="blocks", parameter_bytes=2, gradient_bytes=4, optimizer_bytes=12,
    shards_moments=True, hides_exchange=True, hides_collectives=0.48, attention_rate=0.62,
    more_scores=1, rest_bytes=PYTORCH_BYTES,
)  # fmt: skip
"""torchtitan in its version of the first file, 9dec370, with PyTorch 1963fc8.

PyTorch's attention was FlashAttention 2 unless cuDNN was asked for (pytorch/pytorch, issues 141133
and 142132), and with context parallelism torchtitan asked for FlashAttention. It has 0.62 of the
rate of cuDNN on H100 with 16,384 tokens and heads of 128 (arXiv 2407.08608, figures 5 and 6):
335 of 539 TFLOP/s forward and causal, 322 of 516 backward. In the backward pass of its cross
entropy, PyTorch has three tensors of scores in float32, ours two. Asynchronous tensor parallelism
hides 0.48 of the time on average in two pairs of rows, with it and without.
"""
_FULL = replace(TITAN, shards_parameters=True, hides_collectives=0.0)
_ASYNC = replace(_FULL, hides_collectives=TITAN.hides_collectives)
# Of the products q, k, v, out, gate, up and down of a layer, torchtitan saves the odd ones.
_REPEATS = ("attention/k/", "attention/out/", "mlp/up/")
_SELECTIVE = replace(_FULL, recompute="light", repeats=_REPEATS)
_EAGER = replace(_SELECTIVE, fuses=False)
# Products of layers in fp8, with their casts, take 1 / 1.5 of the time in bfloat16: so rows 3 and 6
# differ from rows 2 and 5 by the published fraction.
_FULL_FP8, _SELECTIVE_FP8, _STAGES_FP8 = (
    replace(system, layer_rate=1.5) for system in (_FULL, _SELECTIVE, TITAN)
)
_PAPER = replace(TITAN, recompute="none", hides_collectives=0.0, attention_rate=1.0)
# A step has 0.8 of the rate of products alone (decision 85), on GPUs with a peak between the one of
# SXM, 989 TFLOP/s, and the one of NVL, 835 TFLOP/s (a note of the first file).
_TITAN_GPU = {
    "float16": 0.8 * 835e12,
    "bfloat16": 0.8 * 835e12,
    "bandwidth_bytes_per_s": 0.9 * 2.4e12,
    "capacity_bytes": 96e9,
}
_HEAD = (
    "| row | step | GPUs | texts x tokens | their plan | published | the same plan | ours |\n"
    "|---|---|---:|---|---|---|---|---|"
)
_TEXT = """\
## Published training at long sequences

`make bench-long-training ARGS=--write`: steps of torchtitan and of Llama 3's paper, next to
predictions, with the time of a step and the memory per GPU. "The same plan" is the source's on the
same GPUs, by the model of [Megatron-LM's steps](#steps-of-megatron-lms-tables-with-pipelines) with
the properties of the source's system: torchtitan's GPUs have products at 0.68 of the rate of our
tables, its attention has 0.62 of cuDNN's rate, its products in fp8 take 1 / 1.5 of the time in
bfloat16 ([decision 85](decisions/0085-published-pipelines.md)). Llama 3's rows have the rates of
our tables. The exchange of keys and values between ranks that share a text (CP) takes no time.
"Ours" is the fastest plan in bfloat16 that fits the same GPUs, by a search with default flags. A
search ends after seconds, so a slow machine finds less; this one had two cores, shared with other
work. Ratios are predicted over published.
"""


@dataclass(frozen=True)
class Row:
    """A published step of texts of ``sequence`` tokens: the seconds and GiB of the source."""

    name: str
    model: Llama
    sequence: int
    degrees: Degrees
    plan: str
    system: System
    step_s: float
    memory_gib: float | None = None
    titan: bool = True

    @property
    def gpus(self) -> int:
        return self.degrees.tensor * self.degrees.replicas * self.degrees.stages

    @property
    def batch(self) -> int:
        """The texts of a step on all GPUs."""
        degrees = self.degrees
        return degrees.data * degrees.micro_batch * degrees.micro_batches

    @property
    def built(self) -> Llama:
        return replace(self.model, sequence=self.sequence, batch=self.batch, dtype="float32")


def _titan(
    name: str, model: Llama, sequence: int, degrees: Degrees, plan: str, system: System,
    tokens_per_s: float, memory_gib: float | None = None,
) -> Row:  # fmt: skip
    """Return a row of torchtitan, with the tokens per second of a GPU."""
    row = Row(name, model, sequence, degrees, plan, system, 0.0, memory_gib)
    return replace(row, step_s=sequence * row.batch / (row.gpus * tokens_per_s))


def _paper(sequence: int, degrees: Degrees, plan: str, flop_per_s: float) -> Row:
    """Return a row of Llama 3's paper, with the rate of a GPU.

    A token takes 6 FLOPs per parameter, and 12 times the width for each key that it sees in a layer
    (arXiv 2204.02311, appendix B).
    """
    row = Row("405B, Llama 3", _405B, sequence, degrees, plan, _PAPER, 0.0, titan=False)
    flops = 6 * 405e9 + 12 * _405B.layers * _405B.width * sequence / 2
    return replace(row, step_s=flops * sequence * row.batch / (row.gpus * flop_per_s))


_8, _128 = (Degrees(1, gpus, 1, (32,), 2, 1) for gpus in (8, 128))
_ONE, _TWO, _FOUR, _EIGHT = (Degrees(1, 8 // n, 1, (32,), 1, 1, n) for n in (1, 2, 4, 8))
_64, _256 = Degrees(8, 8, 1, (32,), 12, 1), Degrees(8, 32, 1, (80,), 16, 1)
_STAGES, _CHUNKS = (Degrees(8, 8, 8, even_chunks(126, n), 4, 8) for n in (8, 16))
_LAYERS = even_chunks(126, 32)
ROWS = (
    _titan("8B, eager", _8B, 8192, _8, "FSDP, selective", _EAGER, 5762, 82.4),
    _titan("8B, compiled", _8B, 8192, _8, "FSDP, selective", _SELECTIVE, 6667, 77.0),
    _titan("8B, fp8", _8B, 8192, _8, "FSDP, selective", _SELECTIVE_FP8, 8532, 76.8),
    _titan("8B, eager", _8B, 8192, _128, "FSDP, selective", _EAGER, 5605, 67.0),
    _titan("8B, compiled", _8B, 8192, _128, "FSDP, selective", _SELECTIVE, 6514, 62.0),
    _titan("8B, fp8", _8B, 8192, _128, "FSDP, selective", _SELECTIVE_FP8, 8380, 61.8),
    _titan("8B, fp8", _8B, 32768, _ONE, "FSDP 8, full", _FULL_FP8, 3890, 83.9),
    _titan("8B, fp8", _8B, 65536, _TWO, "FSDP 4, CP 2, full", _FULL_FP8, 2540, 84.2),
    _titan("8B, fp8", _8B, 131072, _FOUR, "FSDP 2, CP 4, full", _FULL_FP8, 1071, 84.0),
    _titan("8B, fp8", _8B, 262144, _EIGHT, "CP 8, full", _FULL_FP8, 548, 84.5),
    _titan("8B, compiled", _8B, 8192, _64, "FSDP 8, TP 8, per operator", _FULL, 4378),
    _titan("8B, compiled", _8B, 8192, _64, "the same, async", _ASYNC, 4809.4),
    _titan("70B, compiled", _70B, 8192, _256, "FSDP 32, TP 8, full", _FULL, 597.3),
    _titan("70B, compiled", _70B, 8192, _256, "the same, async", _ASYNC, 652.4),
    _titan("405B, fp8", _405B, 8192, _STAGES, "FSDP 8, TP 8, PP 8, 1F1B", _STAGES_FP8, 100, 82.5),
    _titan("405B, fp8", _405B, 8192, _CHUNKS, "the same, interleaved", _STAGES_FP8, 128, 72.7),
    _paper(8192, Degrees(8, 64, 16, _LAYERS, 1, 32), "TP 8, PP 16, DP 64", 430e12),
    _paper(8192, Degrees(8, 128, 16, _LAYERS, 1, 16), "TP 8, PP 16, DP 128", 400e12),
    _paper(131072, Degrees(8, 8, 16, _LAYERS, 1, 16, 16), "TP 8, CP 16, PP 16, DP 8", 380e12),
)


def _gpu(row: Row) -> str:
    """Return the description of the GPUs of a row."""
    text = description_text("h100")
    if not row.titan:
        return text
    for name, number in _TITAN_GPU.items():
        text, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {number}", text, count=1)
        assert count, name
    return text


def _theirs(row: Row) -> tuple[float, float]:
    """Return the predicted seconds and bytes of the source's plan."""
    device = device_of(_gpu(row), "gpu.toml")
    sizes = replace(row.model, sequence=row.sequence)
    step = predict(sizes, row.system, row.degrees, [[device]] * row.degrees.stages)
    return step.time_s, step.memory_bytes


@cache
def _ours(model: Llama, gpus: int, description: str) -> tuple[float, float, str] | None:
    """Return the seconds, the bytes and the choices of our fastest plan that fits."""
    training = to.Training(_LOSS, precision="bfloat16", freeze=_FREEZE)
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        device = Path(folder) / "gpu.toml"
        device.write_text(description, encoding="utf-8")
        limit = int(load_device(str(device)).memory_capacity_bytes or 0)
        loaded = to.load(model.build("model").save(Path(folder)))
        try:
            point = loaded.frontier(gpus, device, memory=limit, train=training).fastest
        except UserError as error:
            print(error, file=sys.stderr)
            return None
        finally:
            load_device.cache_clear()
    mesh = "x".join(map(str, point.found.mesh))
    return point.time_s, point.process_bytes, f"{mesh}, {point.found.recompute}"


def _cell(time_s: float, memory_bytes: float | None, more: str = "") -> str:
    memory = "" if memory_bytes is None else f", {format_bytes(int(memory_bytes))}"
    return f"{format_seconds(time_s)}{memory}{more}"


def _line(number: int, row: Row) -> str:
    if row.model == _405B:
        ours = "not searched"
    else:
        point = _ours(row.built, row.gpus, _gpu(row))
        ours = "none fits" if point is None else _ratio(row, *point)
    published = _cell(row.step_s, None if row.memory_gib is None else row.memory_gib * 2**30)
    texts = f"{row.batch:,} x {row.sequence:,}"
    same = _ratio(row, *_theirs(row))
    cells = (number, row.name, f"{row.gpus:,}", texts, row.plan, published, same, ours)
    return f"| {' | '.join(map(str, cells))} |"


def _ratio(row: Row, time_s: float, memory_bytes: float, plan: str = "") -> str:
    ratios = f"{time_s / row.step_s:.2f}"
    if row.memory_gib is not None and not plan:
        ratios += f", {memory_bytes / (row.memory_gib * 2**30):.2f}"
    return _cell(time_s, memory_bytes, f" ({ratios})" + (f" {plan}" if plan else ""))


def _lines(numbers: Sequence[int]) -> Iterator[str]:
    yield _HEAD
    for number, row in enumerate(ROWS, 1):
        if not numbers or number in numbers:
            yield _line(number, row)


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", nargs="*", type=int, help="numbers of rows (default all)")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    given = parser.parse()
    print_lines("long_training", _TEXT, _lines(given.rows), writes=given.write)


if __name__ == "__main__":
    sys.exit(run_command(main))

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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.llama import Llama
from sections import print_lines
from stages.layered import Degrees, even_chunks, predict
from stages.schedules import LLAMA_405B, TITAN
from stages.systems import System
from train_plans import zero_point

import tensoropt as to
from tensoropt.compiler.cost.device import Device, description_text, load_device
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["ROWS", "Row"]

_8B = Llama()
_70B = Llama(layers=80, width=8192, heads=64, inner=28672)
_8B_DEGREES = Degrees(8, 8, 1, (32,), 12, 1)
_70B_DEGREES = Degrees(8, 32, 1, (80,), 16, 1)
_LOSS = "softmax-cross-entropy:scores,labels"
_FREEZE = "constant_*"
# A step has 0.8 of the rate of products alone (decision 85), on GPUs with a peak between the one of
# SXM, 989 TFLOP/s, and the one of NVL, 835 TFLOP/s (a note of the first file).
_ASYNC = replace(TITAN, product_rate=0.8 * 835 / 989)
_VANILLA = replace(_ASYNC, hides_collectives=0.0)
_PAPER = replace(TITAN, recompute="none", hides_collectives=0.0)
_TITAN_BYTES, _TITAN_BYTES_PER_S = 96e9, 0.9 * 2.4e12
_HEAD = (
    "| row | step | GPUs | texts x tokens | their plan | published | the same plan | ours |\n"
    "|---|---|---:|---|---|---|---|---|"
)
_TEXT = """\
## Published training at long sequences

`make bench-long-training ARGS=--write`: steps of torchtitan and of Llama 3's paper, next to
predictions, with the time of a step and the memory per GPU. "The same plan" is the source's on the
same GPUs: FSDP as a split of batch, parameters and moments, with separate operators between
products, as ONNX Runtime runs them; tensor parallelism and pipelines by the model of
[torchtitan's steps](#steps-of-torchtitan-and-alpa-with-pipelines), with fused operators.
Collectives of tensor parallelism are partly hidden where the source runs it asynchronously. In rows
with tensor parallelism and bfloat16, products have 0.68 of the rate of our tables on torchtitan's
GPUs. "Ours" is the fastest plan that fits, by a search with default flags. Steps in fp8 are
predicted in bfloat16, as tensoropt does not train in fp8. Of selective recomputation, torchtitan
saves attention and every second product; ours (`light`) saves all products. A search ends after
seconds, so a slow machine finds less; this one had two cores, shared with other work.
"""


@dataclass(frozen=True)
class Row:
    """A published step: ``batch`` texts on all GPUs, and the seconds and GiB of the source.

    ``recompute`` is of a source's plan with FSDP alone; ``system`` and ``degrees`` are of one with
    tensor parallelism or stages. Without ``recompute`` and ``degrees``, the plan cannot be said.
    """

    name: str
    model: Llama
    gpus: int
    sequence: int
    batch: int
    plan: str
    step_s: float
    memory_gib: float | None = None
    recompute: str | None = None
    degrees: Degrees | None = None
    system: System = TITAN
    titan: bool = True
    searched: bool = True

    @property
    def built(self) -> Llama:
        return replace(self.model, sequence=self.sequence, batch=self.batch, dtype="float32")


def _by_rate(gpus: int, sequence: int, batch: int, tokens_per_s: float) -> float:
    """Return the seconds of a step in which each GPU takes ``tokens_per_s``."""
    return sequence * batch / (gpus * tokens_per_s)


def _titan(
    name: str, model: Llama, size: tuple[int, int, int], plan: str, rate: float,
    memory_gib: float | None = None, **others: object,
) -> Row:  # fmt: skip
    step_s = _by_rate(*size, rate)
    return Row(name, model, *size, plan, step_s, memory_gib, **others)  # type: ignore[arg-type]


def _paper(size: tuple[int, int, int], plan: str, rate: float, degrees: Degrees | None) -> Row:
    """Return a row of Llama 3's paper, with the rate of a GPU in FLOP/s.

    A token takes 6 FLOPs per parameter, and 12 times the width for each key that it sees in a layer
    (arXiv 2204.02311, appendix B).
    """
    gpus, sequence, batch = size
    model = LLAMA_405B
    flops = 6 * 405e9 + 12 * model.layers * model.width * sequence / 2
    step_s = flops * sequence * batch / (gpus * rate)
    return Row(
        "405B, Llama 3", model, gpus, sequence, batch, plan, step_s, degrees=degrees,
        system=_PAPER, titan=False, searched=False,
    )  # fmt: skip


ROWS = (
    _titan("8B, eager", _8B, (8, 8192, 16), "FSDP, selective", 5762, 82.4, recompute="light"),
    _titan("8B, compiled", _8B, (8, 8192, 16), "FSDP, selective", 6667, 77.0, recompute="light"),
    _titan("8B, eager", _8B, (128, 8192, 256), "FSDP, selective", 5605, 67.0, recompute="light"),
    _titan("8B, compiled", _8B, (128, 8192, 256), "FSDP, selective", 6514, 62.0, recompute="light"),
    _titan("8B, fp8", _8B, (8, 32768, 8), "FSDP 8, full", 3890, 83.9, recompute="blocks"),
    _titan("8B, fp8", _8B, (8, 131072, 2), "FSDP 2, CP 4, full", 1071, 84.0),
    _titan(
        "8B, compiled", _8B, (64, 8192, 96), "FSDP 8, TP 8, per operator", 4378,
        degrees=_8B_DEGREES, system=_VANILLA,
    ),
    _titan(
        "8B, compiled", _8B, (64, 8192, 96), "the same, async", 4809.4,
        degrees=_8B_DEGREES, system=_ASYNC, searched=False,
    ),
    _titan(
        "70B, compiled", _70B, (256, 8192, 512), "FSDP 32, TP 8, full", 597.3,
        degrees=_70B_DEGREES, system=_VANILLA,
    ),
    _titan(
        "70B, compiled", _70B, (256, 8192, 512), "the same, async", 652.4,
        degrees=_70B_DEGREES, system=_ASYNC, searched=False,
    ),
    _titan(
        "405B, fp8", LLAMA_405B, (512, 8192, 256), "FSDP 8, TP 8, PP 8, 1F1B", 100, 82.5,
        degrees=Degrees(8, 8, 8, even_chunks(126, 8), 4, 8), searched=False,
    ),
    _titan(
        "405B, fp8", LLAMA_405B, (512, 8192, 256), "the same, interleaved", 128, 72.7,
        degrees=Degrees(8, 8, 8, even_chunks(126, 16), 4, 8), searched=False,
    ),
    _paper(
        (8192, 8192, 2048), "TP 8, PP 16, DP 64", 430e12,
        Degrees(8, 64, 16, even_chunks(126, 32), 1, 32),
    ),
    _paper(
        (16384, 8192, 2048), "TP 8, PP 16, DP 128", 400e12,
        Degrees(8, 128, 16, even_chunks(126, 32), 1, 16),
    ),
    _paper((16384, 131072, 128), "TP 8, CP 16, PP 16, DP 8", 380e12, None),
)  # fmt: skip


def _gpu(folder: Path, row: Row) -> Path:
    """Return the file with a description of the GPUs of a row."""
    text = description_text("h100")
    if row.titan:
        text = re.sub(r"(?m)^bandwidth_bytes_per_s = 3.015e12.*$",
                      f"bandwidth_bytes_per_s = {_TITAN_BYTES_PER_S}", text)  # fmt: skip
        text = re.sub(r"(?m)^capacity_bytes = .*$", f"capacity_bytes = {_TITAN_BYTES}", text)
    path = folder / "gpu.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _theirs(row: Row, model: Path, device: Device) -> tuple[float, float] | None:
    """Return the predicted seconds and bytes of the source's plan, ``None`` if it has no form."""
    if row.degrees is not None:
        sizes = replace(row.model, sequence=row.sequence)
        kinds = [[device]] * row.degrees.stages
        found = predict(sizes, row.system, row.degrees, kinds)
        return found.time_s, found.memory_bytes
    if row.recompute is None:
        return None
    module = driver.load(model, {}, training=True)
    driver.run_phase(module, "prepare", training=True)
    training = to.Training(_LOSS, precision="bfloat16", recompute=row.recompute, freeze=_FREEZE)
    driver.train(module, training.step().for_device(device))
    point = zero_point(module, row.gpus, 3, device)
    return point.time_s, point.memory_bytes


def _ours(row: Row, model: Path, device: Path) -> tuple[float, float, str]:
    """Return the seconds and bytes of our fastest plan that fits, and its recomputation."""
    training = to.Training(_LOSS, precision="bfloat16", freeze=_FREEZE)
    limit = int(load_device(str(device)).memory_capacity_bytes or 0)
    point = to.load(model).frontier(row.gpus, device, memory=limit, train=training).fastest
    mesh = "x".join(map(str, point.found.mesh))
    return point.time_s, point.process_bytes, f"{mesh}, {point.found.recompute}"


def _cell(time_s: float, memory_bytes: float | None, more: str = "") -> str:
    memory = "" if memory_bytes is None else f", {format_bytes(int(memory_bytes))}"
    return f"{format_seconds(time_s)}{memory}{more}"


def _line(number: int, row: Row) -> str:
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as name:
        folder = Path(name)
        device, model = _gpu(folder, row), row.built.build("model").save(folder)
        theirs = _theirs(row, model, load_device(str(device)))
        same = "cannot be pinned" if theirs is None else _ratio(row, *theirs)
        try:
            ours = _ratio(row, *_ours(row, model, device)) if row.searched else "not searched"
        except UserError as error:
            ours = str(error)
    load_device.cache_clear()
    published = _cell(row.step_s, None if row.memory_gib is None else row.memory_gib * 2**30)
    texts = f"{row.batch:,} x {row.sequence:,}"
    cells = (number, row.name, f"{row.gpus:,}", texts, row.plan, published, same, ours)
    return f"| {' | '.join(map(str, cells))} |"


def _ratio(row: Row, time_s: float, memory_bytes: float, plan: str = "") -> str:
    more = f" ({time_s / row.step_s:.2f})" + (f" {plan}" if plan else "")
    return _cell(time_s, memory_bytes, more)


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

"""Megatron-LM's published degrees next to all others, by the same predictions.

    python bench/stages/megatron_degrees.py              20 steps of two papers' tables, an hour
    python bench/stages/megatron_degrees.py --only a100 --models 7.5B 18B
    python bench/stages/megatron_degrees.py --write      docs/benchmarks.md

For each step of `megatron.py`: all degrees of tensor, pipeline and data parallelism with the same
number of GPUs, all micro-batches and all of our schedules, as `layered.py` predicts them. Counts
those in the memory of Megatron's step that are faster.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sections import write_section

from stages.layered import Degrees, Prediction, even_chunks, predict
from stages.megatron import SETTINGS, Row, Setting, predicted
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.stages.families import FAMILIES, fitting
from tensoropt.runtime.support.flags import Parser, run_command

_TENSOR = (1, 2, 4, 8)  # within a node
_STAGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_MICRO_BATCHES = (1, 2, 4, 8, 16)
_SLACK = 0.9
"""Other schedules are tried if they could be faster than the best by this part of 1F1B's time
without its bubble: chunks may divide the layers more evenly."""
_TEXT = """\
## Megatron-LM's degrees next to others

`python bench/stages/megatron_degrees.py --write`: the steps of the last section in the setting
*plain*, and the fastest of all degrees on the same number of GPUs, with micro-batches of 1 to 16
texts and any of our schedules, in no more memory. *Faster* counts the degrees and micro-batches
that are faster with their best schedule.
"""
_HEAD = (
    "| GPU | model | tensor, stages, data, micro-batch | Megatron's | fastest in its memory "
    "| schedule | time | ratio | faster, of all |",
    "|---|---|---|--:|---|---|--:|--:|--:|",
)


@dataclass(frozen=True)
class _Candidate:
    degrees: Degrees
    schedule: str
    step: Prediction


def _splits(row: Row) -> Iterator[tuple[int, int, int, int]]:
    """Yield degrees of tensor, stages and data, and micro-batches, on as many GPUs as the row's."""
    total = row.tensor * row.stages * row.data
    for tensor in _TENSOR:
        for stages in sorted({*_STAGES, row.stages}):
            data, rest = divmod(total, tensor * stages)
            if row.heads % tensor or rest or stages > row.layers or row.batch % data:
                continue
            for micro_batch in _MICRO_BATCHES:
                if not row.batch // data % micro_batch:
                    yield tensor, stages, data, micro_batch


def _fastest(
    row: Row, setting: Setting, split: tuple[int, int, int, int], most: int, best_s: float
) -> _Candidate | None:
    """Return the fastest schedule of a split in ``most`` bytes; slow splits have only one."""
    tensor, stages, data, micro_batch = split
    count, found = row.batch // data // micro_batch, None
    device, bound_s = load_device(setting.device), 0.0
    for name in fitting(FAMILIES, stages, row.layers) if stages > 1 else ["1f1b"]:
        if name != "1f1b" and bound_s > best_s:
            continue
        family = FAMILIES[name]
        layers = even_chunks(row.layers, stages * family.chunks)
        degrees = Degrees(tensor, data, stages, layers, micro_batch, count)
        step = predict(setting.model(row), setting.system, degrees, [[device]] * stages, family)
        if name == "1f1b":
            bound_s = _SLACK * step.time_s * count / (count + stages - 1)
        if step.memory_bytes <= most and (found is None or step.time_s < found.step.time_s):
            found = _Candidate(degrees, name, step)
    return found


def _line(job: tuple[int, int]) -> str:
    """Return the line of a row, by the numbers of its setting and of itself."""
    setting = SETTINGS[job[0]]
    row = setting.rows[job[1]]
    own, step = predicted(row, setting, setting.system)
    best, faster, tried = None, 0, 0
    for split in _splits(row):
        tried += 1
        limit_s = step.time_s if best is None else best.step.time_s
        found = _fastest(row, setting, split, step.memory_bytes, limit_s)
        if found is None or found.step.time_s >= step.time_s:
            continue
        faster += 1
        if best is None or found.step.time_s < best.step.time_s:
            best = found
    cells = f"{row.tensor}, {row.stages}, {row.data}, {own.micro_batch} | {step.time_s:.2f} s"
    if best is None:
        other = "the same | | |"
    else:
        d = best.degrees
        degrees = f"{d.tensor}, {d.stages}, {d.data}, {d.micro_batch}"
        ratio = best.step.time_s / step.time_s
        other = f"{degrees} | {best.schedule} | {best.step.time_s:.2f} s | {ratio:.2f}"
    return f"| {setting.device} | {row.name} | {cells} | {other} | {faster} of {tried} |"


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=[own.device for own in SETTINGS])
    parser.add_argument("--models", nargs="+", metavar="MODEL")
    parser.add_argument("--write", action="store_true", help="docs/benchmarks.md")
    given = parser.parse()
    jobs = [
        (number, place)
        for number, setting in enumerate(SETTINGS)
        for place, row in enumerate(setting.rows)
        if given.only in (None, setting.device) and (not given.models or row.name in given.models)
    ]
    lines = [*_HEAD]
    print("\n".join(_HEAD), flush=True)
    with ProcessPoolExecutor(2) as pool:
        for line in pool.map(_line, jobs):
            print(line, flush=True)
            lines.append(line)
    if given.write:
        write_section("megatron_degrees", f"{_TEXT}\n" + "\n".join(lines))


if __name__ == "__main__":
    sys.exit(run_command(main))

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
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sections import print_lines

from stages.layered import Degrees
from stages.megatron import SETTINGS, Row, fastest_schedule, predicted
from tensoropt.runtime.support.flags import Parser, run_command

_TENSOR = (1, 2, 4, 8)  # within a node
_STAGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_MICRO_BATCHES = (1, 2, 4, 8, 16)
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


def _splits(row: Row) -> Iterator[tuple[int, int, int, int]]:
    """Yield degrees of tensor, stages and data with the row's number of GPUs, and micro-batches."""
    total = row.tensor * row.stages * row.data
    for tensor in _TENSOR:
        for stages in sorted({*_STAGES, row.stages}):
            data, rest = divmod(total, tensor * stages)
            if row.heads % tensor or rest or stages > row.layers or row.batch % data:
                continue
            for micro_batch in _MICRO_BATCHES:
                if not row.batch // data % micro_batch:
                    yield tensor, stages, data, micro_batch


def _line(job: tuple[int, int]) -> str:
    """Return the line of a row, by the numbers of its setting and of itself."""
    setting = SETTINGS[job[0]]
    row = setting.rows[job[1]]
    own, step = predicted(row, setting, setting.system)
    best_s, cells, faster, tried = step.time_s, "the same | | |", 0, 0
    for tensor, stages, data, micro_batch in _splits(row):
        tried += 1
        count = row.batch // data // micro_batch
        degrees = Degrees(tensor, data, stages, (), micro_batch, count)
        found = fastest_schedule(row, setting, degrees, step.memory_bytes, limit_s=best_s)
        if found is None or found[0] >= step.time_s:
            continue
        faster += 1
        if found[0] < best_s:
            best_s, name = found
            ratio = f"{best_s:.2f} s | {best_s / step.time_s:.2f}"
            cells = f"{tensor}, {stages}, {data}, {micro_batch} | {name} | {ratio}"
    known = f"{row.tensor}, {row.stages}, {row.data}, {own.micro_batch} | {step.time_s:.2f} s"
    return f"| {setting.device} | {row.name} | {known} | {cells} | {faster} of {tried} |"


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
    with ProcessPoolExecutor(2) as pool:
        lines = chain(_HEAD, pool.map(_line, jobs))
        print_lines("megatron_degrees", _TEXT, lines, writes=given.write)


if __name__ == "__main__":
    sys.exit(run_command(main))

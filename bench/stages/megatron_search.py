"""Fastest plans of the default search next to Megatron-LM's published degrees, by the same costs.

    python bench/stages/megatron_search.py                     the rows of up to 1,024 devices
    python bench/stages/megatron_search.py --only a100:39B     some rows
    python bench/stages/megatron_search.py --write             docs/benchmarks.md too

Megatron's plan has its published degrees, its schedule and its recomputation, and the layouts of
`--search expert`. Ours is the fastest point of `--stages auto` in the memory of Megatron's, with
the same micro-batches. Models have no dropout.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.trained import LOSS
from sections import print_lines

import tensoropt as to
from stages.megatron import SETTINGS, Row, Setting
from tensoropt.compiler.search.frontier.points import recompute_of, schedule_of, split_name
from tensoropt.compiler.support.units import format_bytes
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["compare"]

_MOST_DEVICES = 1024
_TEXT = """\
## The default search next to Megatron-LM's degrees

`python bench/stages/megatron_search.py --write`: predicted steps of Megatron-LM's published models
in its own degrees, and of the fastest plan that `--stages auto` finds in the same memory, by
the same costs and micro-batches. The answer is the time from the model to the frontier. Attention
consists of products in these graphs, so Megatron-LM's plans without recomputation take more memory
than an H100 has.
"""


def compare(setting: Setting, row: Row, folder: Path) -> str:
    """Return the row of the table for a published step."""
    degrees, devices = row.degrees(row.micro_batches[-1]), row.tensor * row.stages * row.data
    size = {"layers": row.layers, "batch": row.batch // degrees.micro_batches, "dtype": "float32"}
    graph = replace(setting.model(row), dropout=0.0, attention_dropout=0.0, **size)
    model = to.load(graph.build(row.name).save(folder))
    system = setting.system
    training = to.Training(
        LOSS,
        micro_batches=degrees.micro_batches,
        precision=system.precision,
        recompute=system.recompute,
    )
    asked = {"device": setting.device, "mesh": (row.data, row.tensor), "search": "expert"}
    if row.stages > 1:
        asked |= {"stages": row.stages, "schedule": "interleaved" if row.chunks > 1 else "1f1b"}
    theirs = model.frontier(devices, train=training, **asked)[0]  # type: ignore[arg-type]
    begun_s = time.monotonic()
    free = replace(training, recompute="auto")
    limits = {"device": setting.device, "memory": theirs.process_bytes}
    ours = model.frontier(devices, train=free, stages="auto", **limits).fastest  # type: ignore[arg-type]
    took_s = time.monotonic() - begun_s
    plan = f"{split_name(ours.found)}, {schedule_of(ours.found)}, {recompute_of(ours.found)}"
    cells = (
        setting.device,
        row.name,
        str(devices),
        f"{row.stages} of {row.data}x{row.tensor}",
        f"{theirs.time_s:.2f} s, {format_bytes(theirs.process_bytes)}",
        plan,
        f"{ours.time_s:.2f} s, {format_bytes(ours.process_bytes)}",
        f"{ours.time_s / theirs.time_s:.3f}",
        f"{took_s:.0f} s",
    )
    return f"| {' | '.join(cells)} |"


def _lines(only: list[str] | None) -> Iterator[str]:
    yield "| GPU | model | devices | Megatron's | step | ours | step | ratio | answer |"
    yield "|---|---|---:|---|---|---|---|---:|---:|"
    for setting in SETTINGS:
        for row in setting.rows:
            wanted = only is None or f"{setting.device}:{row.name}" in only
            if wanted and row.tensor * row.stages * row.data <= _MOST_DEVICES:
                with tempfile.TemporaryDirectory() as folder:
                    yield compare(setting, row, Path(folder))


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="GPU:MODEL", help="rows, such as a100:39B")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    given = parser.parse()
    print_lines("megatron_search", _TEXT, _lines(given.only), writes=given.write)


if __name__ == "__main__":
    sys.exit(run_command(main))

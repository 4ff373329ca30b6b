"""Unlike devices: plans for groups, next to plans for each kind alone and for equal parts.

    python bench/stages/unlike.py                       four A100 and four V100
    python bench/stages/unlike.py h100:4,l40s:4 --search-time 60
    python bench/stages/unlike.py --write               the table into docs/benchmarks.md too

The model is a GPT in half precision. Times are predicted: of a training step of 8 micro-batches,
and between the results of a stream of inputs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.gpt import Gpt
from sections import write_section

import tensoropt as to
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.runtime.support.flags import Parser, run_command

MODEL = Gpt(
    layers=12, width=1024, heads=16, vocabulary=8192, sequence=512, batch=4, dtype="float16"
)
MICRO_BATCHES = 8
_TEXT = f"""\
## Plans for unlike devices

`python bench/stages/unlike.py --write`: the fastest plans of GPT with {MODEL.layers} layers of
width {MODEL.width}, in half precision, with {MODEL.batch} sequences of {MODEL.sequence} tokens.
*step* is a training step of {MICRO_BATCHES} micro-batches, *interval* the time between results in
inference, both predicted. *all, equal parts* is the fastest plan for all devices without stages,
which waits for the slowest.

"""


@dataclass(frozen=True)
class Row:
    """The fastest plans of some devices."""

    devices: str
    step: to.Point
    stream: to.Point
    bound: float | None

    def cells(self, of: Row) -> list[str]:
        """Return the cells of the row, with times as multiples of the row ``of``."""
        return [
            self.devices,
            *_time(self.step, of.step),
            format_bytes(self.step.memory_bytes),
            "-" if self.bound is None else f"{self.bound:.0%}",
            *_time(self.stream, of.stream),
        ]


def _time(own: to.Point, of: to.Point) -> tuple[str, str]:
    return format_seconds(own.time_s), f"{own.time_s / of.time_s:.2f}"


HEAD = ["devices", "step", "of all", "memory", "above the bound", "interval", "of all"]


def rows(groups: str, search_time_s: float) -> Iterator[Row]:
    """Yield the rows: all devices, equal parts, and each group alone."""
    with tempfile.TemporaryDirectory() as folder:
        model = to.load(MODEL.build("gpt").save(Path(folder)))
        yield _row(model, "all, in groups", groups, "auto", search_time_s)
        yield _row(model, "all, equal parts", groups, 1, search_time_s)
        for group in load_device(groups).groups:
            own = f"{group.name}:{group.count}"
            yield _row(model, f"{group.count} {group.device.name}", own, "auto", search_time_s)


def _row(model: to.Model, name: str, devices: str, stages: int | str, limit_s: float) -> Row:
    loss = "softmax-cross-entropy:scores,labels"
    asked = {"stages": stages, "search_time": limit_s}
    train = to.Training(loss, micro_batches=MICRO_BATCHES)
    step = model.frontier(devices, train=train, **asked)  # type: ignore[arg-type]
    step_facts = step.facts()
    stream = model.frontier(devices, objective="throughput", **asked)  # type: ignore[arg-type]
    return Row(name, step.fastest, stream.fastest, step_facts.time_epsilon)


def table(found: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [HEAD, ["---"] * len(HEAD), *(row.cells(found[0]) for row in found)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Print the table."""
    parser = Parser(description=__doc__)
    parser.add_argument("devices", nargs="?", default="a100:4,v100:4", help="the groups")
    parser.add_argument("--search-time", type=float, default=60.0, help="seconds of each search")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    given = parser.parse()
    text = table([*rows(given.devices, given.search_time)])
    print(text)
    if given.write:
        write_section("stages_unlike", _TEXT + text)


if __name__ == "__main__":
    sys.exit(run_command(main))

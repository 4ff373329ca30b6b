"""Unlike devices: stages and replicas, next to equal parts and to plans for each kind alone.

    python bench/stages/unlike.py                       four A100 and four V100
    python bench/stages/unlike.py h100:4,l40s:4 --search-time 20
    python bench/stages/unlike.py --write               the table into docs/benchmarks.md too

The model is a GPT in half precision. Times are predicted: of a training step of 8 micro-batches,
and between the results of a stream of inputs, for replicas the time of a run per batch.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.gpt import Gpt
from sections import write_section

import tensoropt as to
from tensoropt.compiler.cost.device import Group, load_device
from tensoropt.compiler.layout.mesh import factorisations
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
inference, both predicted. On replicas it is the time of a run of {MICRO_BATCHES} batches, divided
by {MICRO_BATCHES}. *all, equal parts* is the fastest plan for all devices on one mesh, which waits
for the slowest. *bound* is the excess over the bound of the search for the step.

"""


@dataclass(frozen=True)
class Row:
    """The fastest plans of some devices, with the micro-batches of replicas, such as 6+2."""

    devices: str
    step: to.Point
    interval_s: float
    bound: float | None

    def cells(self, of: Row) -> list[str]:
        """Return the cells of the row, with times as multiples of the row ``of``."""
        return [
            self.devices,
            *_time(self.step.time_s, of.step.time_s),
            "+".join(str(row.micro_batches) for row in self.step.replicas) or "-",
            format_bytes(self.step.memory_bytes),
            "-" if self.bound is None else f"{self.bound:.0%}",
            *_time(self.interval_s, of.interval_s),
        ]


def _time(own_s: float, of_s: float) -> tuple[str, str]:
    return format_seconds(own_s), f"{own_s / of_s:.2f}"


HEAD = ["devices", "step", "of stages", "parts", "memory", "bound", "interval", "of stages"]


def rows(groups: str, search_time_s: float) -> Iterator[Row]:
    """Yield the rows: stages, replicas, equal parts, and each group alone."""
    own = load_device(groups).groups
    devices = sum(group.count for group in own)
    with tempfile.TemporaryDirectory() as folder:
        model = to.load(MODEL.build("gpt").save(Path(folder)))
        counts = [n for n in range(2, devices + 1) if _divides(n, own)]
        limit = {"search_time": search_time_s}
        stages = [{"stages": count, **limit} for count in counts]
        yield _row(model, "all, in stages", groups, stages)
        runs = [{"batches": MICRO_BATCHES, **limit}]
        yield _row(model, "all, on replicas", groups, [{"stages": 1, **limit}], runs)
        meshes = [{"mesh": str(mesh), **limit} for mesh in factorisations(devices, devices)]
        yield _row(model, "all, equal parts", groups, meshes)
        for group in own:
            name = f"{group.count} {group.device.name}"
            yield _row(model, name, f"{group.name}:{group.count}", [{"stages": "auto", **limit}])


def _divides(stages: int, groups: Sequence[Group]) -> bool:
    size, rest = divmod(sum(group.count for group in groups), stages)
    return not rest and not any(group.count % size for group in groups)


def _row(
    model: to.Model,
    name: str,
    devices: str,
    asked: Sequence[Mapping[str, object]],
    runs: Sequence[Mapping[str, object]] = (),
) -> Row:
    """Return the fastest plans of several searches; ``runs`` are those for runs of batches."""
    train = to.Training("softmax-cross-entropy:scores,labels", micro_batches=MICRO_BATCHES)
    steps = [model.frontier(devices, train=train, **own) for own in asked]  # type: ignore[arg-type]
    step = min(steps, key=lambda own: own.fastest.time_s)
    if runs:
        found = [model.frontier(devices, **own) for own in runs]  # type: ignore[arg-type]
        interval_s = min(own.fastest.time_s for own in found) / MICRO_BATCHES
    else:
        streams = [
            model.frontier(devices, objective="throughput" if "mesh" not in own else "time", **own)  # type: ignore[arg-type]
            for own in asked
        ]
        interval_s = min(own.fastest.time_s for own in streams)
    bound = step.facts().time_epsilon if len(steps) == 1 else None
    return Row(name, step.fastest, interval_s, bound)


def table(found: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [HEAD, ["---"] * len(HEAD), *(row.cells(found[0]) for row in found)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Print the table."""
    parser = Parser(description=__doc__)
    parser.add_argument("devices", nargs="?", default="a100:4,v100:4", help="the groups")
    parser.add_argument("--search-time", type=float, default=20.0, help="seconds of each search")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    given = parser.parse()
    text = table([*rows(given.devices, given.search_time)])
    print(text)
    if given.write:
        write_section("stages_unlike", _TEXT + text)


if __name__ == "__main__":
    sys.exit(run_command(main))

"""Overlap of the communication and computation of a training step, on a simulated link.

    python bench/collectives/overlap.py              five models that split the batch on 2 ranks;
                                                     minutes
    python bench/collectives/overlap.py gpt2 --rounds 20
    python bench/collectives/overlap.py --share 1    a link on which sending takes as long as
                                                     computing
    python bench/collectives/overlap.py --write      the table into docs/benchmarks.md too

Each model gets the same plan twice, with ``--overlap off`` and with ``--overlap auto``, for a
description with ``[overlap]``. Its rates make the predicted computation as long as the measured
one, and the library simulates its link: collectives sleep for the time that they would take on it
(``TENSOROPT_LINK_BYTES_PER_S``), and then move their bytes through memory, which takes a core from
operators. That time is measured for each collective of the plan, and is the ``share`` of the
description. Steps of both plans, and of the plain plan without that link, take turns (`turns`).

*computing* is the plain plan's step, including the time to move the bytes on this machine
(*moving*). *sending* is the time of a step's collectives on the link, plus moving. *hidden* is the
part of it that starts and waits save. *of the longer* is a step over the longer of computing and
sending: 1 if everything is hidden that can be. The losses of all three must agree bit by bit.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
from graphs.runnable import TRAINED
from linked import environment_of_link, write_linked
from sections import write_section
from train_plans import RECIPES, Plan, extremes, trained, write_plan
from train_runs import trained_by_turns
from training_data import batch_size, draw
from turns import Gate, Place, Turn, Way, busy_note, take_turns

from tensoropt.compiler.calibrate.graphs import COLLECTIVES, collective_graph
from tensoropt.compiler.calibrate.machine_load import busy_fraction
from tensoropt.compiler.calibrate.ranks import MeasuredGraph, Ranks
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.points import fastest
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.runtime.inspection.summary import collectives_of
from tensoropt.runtime.plan.plan import Plan as WrittenPlan
from tensoropt.runtime.support.collectives import JOINED, STARTS
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.rank_options import RankOptions

__all__ = ["Row", "Sizes", "measure", "table"]

_LATENCY_S = 20e-6
_WARM_UP = 3
_FIRST = 3
"""Number of turns to fit the rates of a description."""
_TIMES, _MOVED_S = 16, 0.1
"""Number of copies of a collective in the graph that times it, and the seconds that it runs."""
_PLAIN, _OFF, _AUTO = "plain", "off", "auto"
_TEXT = """\
## Overlap of collectives and operators

`python bench/collectives/overlap.py --write`: training steps that split the batch on {ranks}
ranks of one thread, on a link on which a step sends {share:g} times as long as it computes.
*off* and *auto* are plans with `--overlap` of that name, and *computing* is *off* without the
link. *sending* is the time of its collectives on the link, plus *moving*, the time to move their
bytes on this machine, which takes cores from operators. *hidden* is the part of it that *auto*
saves, *predicted* the part that its plan predicts (`hidden_s`), and *of the longer* its step
over the longer of computing and sending. Medians of {rounds} turns of {steps} steps.

{table}

{busy}"""
_MORE = """
[operator."tensoropt.Elementwise".float32]
bytes_per_s = {pass_bytes_per_s}

[overlap]
start_s = {start_s}
share = {lost}
"""


@dataclass(frozen=True)
class Sizes:
    """Amount of measurement, and the link."""

    ranks: int = 2
    rounds: int = 9
    steps: int = 3
    share: float = 0.5
    start_s: float = 12e-6


@dataclass(frozen=True)
class Row:
    """Measurements of one model; times are per step."""

    model: str
    turns: Mapping[str, list[Turn]]
    sending_s: float
    moving_s: float
    predicted_s: float
    collectives: int
    started: int

    @property
    def computing_s(self) -> float:
        """The step without the link."""
        return statistics.median(turn.step_s for turn in self.turns[_PLAIN])

    @property
    def hidden_s(self) -> float:
        """The time that starts and waits save."""
        return self._more_s(_OFF, _AUTO)

    @property
    def of_longer(self) -> float:
        """The step over the longer of computing and sending."""
        return self.linked_s(_AUTO) / max(self.computing_s, self.sending_s)

    def linked_s(self, way: str) -> float:
        """Return the step time with the link, by differences to turns without it."""
        return self.computing_s + self._more_s(way, _PLAIN)

    def _more_s(self, way: str, base: str) -> float:
        pairs = zip(self.turns[way], self.turns[base], strict=True)
        return statistics.median(a.step_s - b.step_s for a, b in pairs)


def measure(name: str, sizes: Sizes, folder: Path) -> Row:
    """Return the row of a model. Raises ValueError if losses differ."""
    path = TRAINED[name].build(name).save(folder, seed=0)
    data = folder / f"{name}.npz"
    np.savez(data, **draw(path, batch_size(path)))
    rates = _rates(_Machine(path, name, sizes, folder / "first", _Rates()), data)
    machine = _Machine(path, name, sizes, folder / "linked", rates)
    plans = {way: machine.planned(way) for way in (_OFF, _AUTO)}
    ways = {way: _way(plan, data, name, rates.bytes_per_s) for way, (plan, _) in plans.items()}
    ways = {_PLAIN: _way(plans[_OFF][0], data, name), **ways}
    given = {way: (function, sizes.ranks) for way, function in ways.items()}
    turns, teams = take_turns(given, sizes.rounds, sizes.steps, _WARM_UP)
    _check(name, {way: team.results[0] for way, team in teams.items()})
    return _row(name, turns, plans, rates)


def _row(
    name: str,
    turns: Mapping[str, list[Turn]],
    plans: Mapping[str, tuple[Path, FrontierPoint]],
    rates: _Rates,
) -> Row:
    (_, off), (path, auto) = plans[_OFF], plans[_AUTO]
    sent = collectives_of(WrittenPlan.read(path))
    started = sum(one.kind in STARTS for one in sent)
    sending_s, moving_s = off.communication_s, rates.lost * off.communication_s
    return Row(name, turns, sending_s, moving_s, auto.hidden_s, len(sent), started)


@dataclass(frozen=True)
class _Rates:
    """Rates of a machine and of its simulated link.

    ``slower`` is the factor by which it computes slower than the first guess, ``lost`` the part of
    a transfer spent on moving bytes, and ``both_bytes_per_s`` the rate of link and moving together.
    """

    slower: float = 1.0
    bytes_per_s: float = 1e9
    lost: float = 0.1
    both_bytes_per_s: float = 1e9


@dataclass(frozen=True)
class _Machine:
    """A model and its target machine, planned below a folder."""

    path: Path
    model: str
    sizes: Sizes
    folder: Path
    rates: _Rates

    def planned(self, overlap: str) -> tuple[Path, FrontierPoint]:
        """Write the plan that splits the batch; return its directory and its point."""
        request = replace(
            extremes(self.sizes.ranks),
            search="data-parallel",
            device=str(self._described()),
            overlap=overlap,
        )
        recipe = RECIPES[self.model]
        result = driver.frontier(trained(self.path, recipe, "none"), request)
        point = fastest(result.points)
        plan = Plan(overlap, recipe, request, result, point)
        return write_plan(self.path, plan, self.folder), point

    def _described(self) -> Path:
        self.folder.mkdir(exist_ok=True)
        slower = self.rates.slower
        more = _MORE.format(
            pass_bytes_per_s=26e9 / slower, start_s=self.sizes.start_s, lost=self.rates.lost
        )
        return write_linked(
            self.folder,
            self.sizes.ranks,
            slower,
            launch_s=3e-6,
            latency_s=_LATENCY_S,
            bytes_per_s=self.rates.both_bytes_per_s,
            more=more,
        )


def _rates(machine: _Machine, data: Path) -> _Rates:
    """Return the rates at which the predicted step takes as long as the measured one."""
    (plan, point), ranks = machine.planned(_OFF), machine.sizes.ranks
    ways = {_PLAIN: (_way(plan, data, machine.model), ranks)}
    turns, _ = take_turns(ways, _FIRST, machine.sizes.steps, _WARM_UP)
    step_s = min(turn.step_s for turn in turns[_PLAIN])
    moving_s = min(_moving_s(plan, machine), step_s / 2)  # also counts other work
    sent = collectives_of(WrittenPlan.read(plan))
    kept_s, latency_s = machine.sizes.share * step_s, _LATENCY_S * len(sent)
    if kept_s <= latency_s:
        raise ValueError(f"--share: latencies of {len(sent)} collectives take longer, raise it")
    volume = sum(_passed(one.kind, ranks) * (one.bytes or 0) for one in sent)
    return _Rates(
        (step_s - moving_s) / point.compute_s,
        volume / (kept_s - latency_s),
        moving_s / (kept_s + moving_s),
        volume / (kept_s + moving_s - latency_s),
    )


def _passed(kind: str, ranks: int) -> float:
    """Return the least number of times that a rank's bytes cross its link."""
    others = ranks - 1
    times = {"AllReduce": 2 * others / ranks, "AllGather": others}
    return float(times.get(JOINED.get(kind, kind), others / ranks))


def _moving_s(plan: Path, machine: _Machine) -> float:
    """Return the time to move the bytes of all collectives of a step on this machine."""
    kinds = {op_type: kind for kind, (op_type, _) in COLLECTIVES.items()}
    sent = Counter(
        (kinds[JOINED.get(one.kind, one.kind)], max(int(one.bytes or 0) // 4, 1))
        for one in collectives_of(WrittenPlan.read(plan))
    )
    count, graphs = machine.sizes.ranks, list[MeasuredGraph]()
    for number, (kind, elements) in enumerate(sent):
        name = str(machine.folder / f"moved{number}_{{rank}}.onnx")
        even = -(-elements // count) * count
        for rank in range(count):
            path = Path(name.replace("{rank}", str(rank)))
            collective_graph(path, kind, even, range(count), _TIMES)
        graphs.append(MeasuredGraph(kind, name, alone=False))
    found = Ranks(RankOptions(threads=1), lambda _: None).times_s(graphs, count, _MOVED_S)
    pairs = zip(found, sent.values(), strict=True)
    return sum((time_s or 0.0) / _TIMES * times for time_s, times in pairs)


def _way(plan: Path, data: Path, model: str, bytes_per_s: float | None = None) -> Way:
    rate = RECIPES[model].learning_rate
    run = partial(trained_by_turns, directory=plan, data=data, learning_rate=rate)
    return run if bytes_per_s is None else partial(_linked, run=run, bytes_per_s=bytes_per_s)


def _linked(place: Place, gate: Gate, run: Way, bytes_per_s: float) -> list[float]:
    os.environ.update(environment_of_link(_LATENCY_S, bytes_per_s))
    losses: list[float] = run(place, gate)
    return losses


def _check(name: str, losses: Mapping[str, Sequence[float]]) -> None:
    for way, own in losses.items():
        if own != losses[_PLAIN]:
            raise ValueError(f"{name}: {way}: losses differ from those without the link")


def table(rows: Sequence[Row]) -> str:
    """Return the figures of the models in Markdown."""
    head = [
        "model",
        "computing, ms",
        "sending, ms",
        "moving, ms",
        "off, ms",
        "auto, ms",
        "started",
        "hidden",
        "predicted",
        "of the longer",
    ]
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(_cells(row))} |" for row in rows)])


def _cells(row: Row) -> list[str]:
    times_s = [row.computing_s, row.sending_s, row.moving_s]
    times_s += [row.linked_s(way) for way in (_OFF, _AUTO)]
    times = [f"{1e3 * time_s:.1f}" for time_s in times_s]
    hidden = [f"{time_s / row.sending_s:.0%}" for time_s in (row.hidden_s, row.predicted_s)]
    started = f"{row.started} of {row.collectives}"
    return [row.model, *times, started, *hidden, f"{row.of_longer:.2f}"]


def main() -> None:
    """Print a line per model as it finishes, and the table."""
    given = _parser().parse()
    sizes = Sizes(given.ranks, given.rounds, given.steps, given.share)
    rows, busy = list[Row](), list[float]()
    for name in given.models or TRAINED:
        busy.append(busy_fraction(1.0) or 0.0)
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            rows.append(measure(name, sizes, Path(folder)))
        print(table(rows[-1:]).splitlines()[2], file=sys.stderr, flush=True)
    text = table(rows)
    print(text)
    if given.write:
        facts = {"table": text, "busy": busy_note(statistics.fmean(busy))}
        write_section("overlap", _TEXT.format(**facts, **vars(sizes)))


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*TRAINED, []], help="default all")
    parser.add_argument("--ranks", type=int, default=Sizes.ranks)
    parser.add_argument("--rounds", type=int, default=Sizes.rounds)
    parser.add_argument("--steps", type=int, default=Sizes.steps, help="steps of a turn")
    parser.add_argument(
        "--share", type=float, default=Sizes.share, help="time of sending over time of computing"
    )
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))

"""Predicted and measured time of plans, for measured models and for others.

    python bench/accuracy/step_time.py                       all models, about ten minutes
    python bench/accuracy/step_time.py --models gpt squeezenet --ranking gpt --budget 120
    python bench/accuracy/step_time.py --save here.jsonl     save the measurements, in two files
    python bench/accuracy/step_time.py --from here.jsonl     evaluate saved measurements
    python bench/accuracy/step_time.py --write               into docs/benchmarks.md, with a picture

tensoropt-profile measures plans of all models, on 1, 2, ... ranks. Then descriptions are fitted to
parts of these measurements: to the plans of every other model, which predicts the plans of the rest
(both ways); to all plans except one, which predicts that plan; and to all plans. For the models of
``--ranking``, ``--plans`` plans on the largest number of ranks run in turns: points of the
frontier, results of other searches, and random plans. The description was not fitted to them,
except by chance. Use an idle machine: other work prolongs measured times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
import zoo
from graphs.bert import Bert
from graphs.gpt import Gpt
from graphs.llama import Llama
from graphs.vit import Vit
from sections import write_section

from tensoropt.compiler.calibrate.description_fit import Identity, describe
from tensoropt.compiler.calibrate.machine_load import busy_fraction
from tensoropt.compiler.calibrate.planned import PlannedStep, planned_step
from tensoropt.compiler.calibrate.plans import Model, PlanFiles, prepare_model
from tensoropt.compiler.calibrate.ranks import Ranks
from tensoropt.compiler.calibrate.run import ProfileRequest, run
from tensoropt.compiler.calibrate.sample_file import read_samples, write_samples
from tensoropt.compiler.calibrate.samples import Measurements, PlanSample
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.cut import copy_of
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.rank_options import RankOptions

__all__ = ["MODELS", "Row", "errors_of", "halves", "rank_correlation", "regret"]

_TRANSFORMERS = {
    "gpt": Gpt(
        layers=4, width=256, heads=4, vocabulary=512, sequence=64, batch=4, dtype="float32"
    ),
    "bert": Bert(layers=4, width=256, heads=4, vocabulary=1000, sequence=128, batch=4),
    "llama": Llama(
        layers=3, width=256, heads=8, groups=4, inner=688, vocabulary=1000, sequence=64, batch=4,
        dtype="float32",
    ),
    "vit": Vit(layers=4, width=256, heads=4, patch=16, image=96, batch=4),
}  # fmt: skip
MODELS = (
    "resnet50", "squeezenet", "gpt", "bert", "inception_v1", "densenet121", "llama", "vit",
)  # fmt: skip
"""The halves alternate, so that both have image networks and transformers."""

_GOALS = "goals: 10% of models not measured, 5% with their own, correlation 0.95, fastest within 3%"
_PICTURE = Path(__file__).parents[2] / "docs" / "truth-time.svg"
_SEARCH_S, _TURNS, _RUN_S = 6.0, 3, 0.5


@dataclass(frozen=True)
class Row:
    """A plan with the measured seconds of its step and three predictions.

    The predictions are by a fit without its half of the models, by a fit without this plan, and by
    a fit to all plans.
    """

    model: str
    plan: str
    ranks: int
    measured_s: float
    others_s: float
    held_out_s: float
    own_s: float


def halves(plans: Sequence[PlanSample]) -> list[list[PlanSample]]:
    """Return the plans of every second model, and the plans of the others."""
    models = list(dict.fromkeys(plan.model.name for plan in plans))
    return [[p for p in plans if models.index(p.model.name) % 2 == half] for half in (0, 1)]


def errors_of(predicted: Sequence[float], measured: Sequence[float]) -> list[float]:
    """Return ``|predicted / measured - 1|`` of each."""
    return [abs(a / b - 1) for a, b in zip(predicted, measured, strict=True)]


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Return Spearman's rank correlation; equal values have their mean rank."""
    return float(np.corrcoef(_places(a), _places(b))[0, 1])


def _places(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(v) + (ordered.count(v) - 1) / 2 for v in values]


def regret(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Return the relative excess time of the predicted fastest plan over the fastest."""
    return measured[int(np.argmin(predicted))] / min(measured) - 1


def fitted(measured: Measurements, plans: Sequence[PlanSample]) -> Device:
    """Return the description fitted to all common measurements and only these plans."""
    identity = Identity("here", load_device("cpu"), "bench/accuracy/step_time.py")
    return describe(identity, replace(measured, plans=[*plans]), checked=False).device


def rows_of(measured: Measurements) -> list[Row]:
    """Return a row per measured plan."""
    first, second = halves(measured.plans)
    by_half = (fitted(measured, second), fitted(measured, first))
    whole, rows = fitted(measured, measured.plans), []
    for half, device in zip((first, second), by_half, strict=True):
        for plan in half:
            rest = [other for other in measured.plans if other is not plan]
            devices = device, fitted(measured, rest), whole
            times = (plan.step.time_s(one) for one in devices)
            name = plan.model.name.removesuffix(".onnx")
            rows.append(Row(name, plan.name, plan.step.ranks, plan.measured_s, *times))
    return rows


@dataclass(frozen=True)
class Ranking:
    """Plans of one model on ``ranks`` ranks: their names, predicted and measured seconds.

    ``turns`` are the times of each plan in the turns that measured all plans; the fastest is
    ``measured_s``.
    """

    model: str
    ranks: int
    names: Sequence[str]
    predicted_s: Sequence[float]
    turns: Sequence[Sequence[float]]

    @property
    def measured_s(self) -> list[float]:
        """The time of each plan."""
        return [min(own) for own in self.turns]

    def ceiling(self) -> float | None:
        """Return the mean correlation of a turn with the fastest of the other turns.

        No prediction exceeds it except by chance. ``None`` if there is only one turn.
        """
        counts = {len(own) for own in self.turns}
        if len(counts) != 1 or counts == {1}:
            return None
        times = np.array(self.turns).T
        rest = [np.delete(times, at, axis=0).min(axis=0) for at in range(len(times))]
        pairs = zip(times, rest, strict=True)
        return float(np.mean([rank_correlation(list(one), list(other)) for one, other in pairs]))


def ranked(model: Model, ranks: int, plans: int, folder: Path) -> list[PlanSample]:
    """Measure ``plans`` plans of a model in turns; return a sample for each turn of each."""
    files = list(_ranked(model, ranks, plans, folder))
    machine = Ranks(RankOptions(threads=1), _say)
    graphs = [graph for plan in files for graph in plan.graphs]
    turns = [machine.times_s(graphs, ranks, _RUN_S) for _ in range(_TURNS)]
    return [
        PlanSample(model.key, plan.name, plan.step, time_s, ())
        for times in turns
        for plan, time_s in zip(files, times, strict=True)
        if time_s is not None
    ]


def rankings_of(plans: Sequence[PlanSample], device: Device) -> list[Ranking]:
    """Return a ranking of the plans of each model, as ``device`` predicts them."""
    found = []
    for model, ranks in dict.fromkeys((plan.model, plan.step.ranks) for plan in plans):
        own: dict[tuple[str, PlannedStep], list[float]] = defaultdict(list)
        for plan in plans:
            if (plan.model, plan.step.ranks) == (model, ranks):
                own[plan.name, plan.step].append(plan.measured_s)
        predicted, names = [step.time_s(device) for _, step in own], [name for name, _ in own]
        turns = list(own.values())
        found.append(Ranking(model.name.removesuffix(".onnx"), ranks, names, predicted, turns))
    return found


def _ranked(model: Model, ranks: int, plans: int, folder: Path) -> Iterator[PlanFiles]:
    """Write different plans: half of them from the frontier and other searches, half random."""
    seen: set[PlannedStep] = set()
    for name, request in _requests(ranks, plans):
        try:
            result = driver.frontier(model.module, request)
        except UserError:  # expert finds no plan for some models
            continue
        room = plans // 2 if name == "frontier" else len(seen) + 1
        points = result.points
        for at in sorted({round(x) for x in np.linspace(0, len(points) - 1, min(room, plans))}):
            step = planned_step(points[at])
            if step in seen or len(seen) == plans or (name != "frontier" and at):
                continue
            seen.add(step)
            target = folder / f"{model.path.stem}-ranked{len(seen)}"
            module = copy_of(model.module)
            driver.settle(module, points[at], request, result)
            driver.compile_plan(module, model.path, target)
            yield PlanFiles(model, f"{name} {at}", target, step, points[at].memory_bytes)


def _requests(ranks: int, plans: int) -> Iterator[tuple[str, Request]]:
    yield "frontier", Request(ranks, epsilon=0.02, search_time=_SEARCH_S)
    for search in ("data-parallel", "expert"):
        yield search, Request(ranks, search=search)
    for seed in range(plans):
        yield (
            f"mcmc {seed}" if seed < 2 else f"random {seed}",
            Request(ranks, search="mcmc" if seed < 2 else "random", seed=seed),
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def table(rows: Sequence[Row], rankings: Sequence[Ranking]) -> list[str]:
    """Return the lines of the tables in Markdown, with the means in the last rows."""
    head = "| model | plans | others | held out | own |"
    lines = [head, "|---|---:|---:|---:|---:|"]
    for model in dict.fromkeys(row.model for row in rows):
        lines.append(_mean_row(model, [row for row in rows if row.model == model]))
    lines.append(_mean_row("all", rows))
    for count in sorted({row.ranks for row in rows}):
        some = [row for row in rows if row.ranks == count]
        lines.append(_mean_row(f"all, {count} rank{'s' if count > 1 else ''}", some))
    if rankings:
        head = "| model | ranks | plans | rank correlation | of a turn | predicted fastest takes |"
        lines += ["", head, "|---|---:|---:|---:|---:|---:|"]
    return lines + [_ranking_row(own) for own in rankings]


def _ranking_row(own: Ranking) -> str:
    rho, ceiling = rank_correlation(own.predicted_s, own.measured_s), own.ceiling()
    turn = "-" if ceiling is None else f"{ceiling:.3f}"
    more = regret(own.predicted_s, own.measured_s)
    return f"| {own.model} | {own.ranks} | {len(own.names)} | {rho:.3f} | {turn} | {more:+.1%} |"


def _mean_row(name: str, rows: Sequence[Row]) -> str:
    measured = [row.measured_s for row in rows]
    predicted = [
        [getattr(row, field) for row in rows] for field in ("others_s", "held_out_s", "own_s")
    ]
    means = (f"{np.mean(errors_of(times, measured)):.1%}" for times in predicted)
    return f"| {name} | {len(rows)} | {' | '.join(means)} |"


def draw(rows: Sequence[Row], rankings: Sequence[Ranking], path: Path) -> None:
    """Draw predicted against measured times, of the other half of the models and of rankings."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9 if rankings else 5, 4.2), layout="constrained")
    titles = ("models not measured", "plans of measured models")[: 2 if rankings else 1]
    panels = figure.subplots(1, len(titles), squeeze=False)[0]
    for axes, title in zip(panels, titles, strict=True):
        axes.set(xscale="log", yscale="log", xlabel="measured, ms", ylabel="predicted, ms")
        axes.set_title(title, fontsize=10)
        axes.axline((1, 1), (10, 10), color="grey", linewidth=0.8)
    for model in dict.fromkeys(row.model for row in rows):
        own = [(1e3 * r.measured_s, 1e3 * r.others_s) for r in rows if r.model == model]
        panels[0].plot(*zip(*own, strict=True), "o", markersize=4, label=model)
    for one in rankings:
        times = 1e3 * np.array([one.measured_s, one.predicted_s])
        panels[1].plot(*times, "o", markersize=4, label=f"{one.model}, {one.ranks} ranks")
    for axes in panels:
        axes.legend(fontsize=7) if axes.has_data() else None
    figure.savefig(path, metadata={"Date": None})


def measure(given: argparse.Namespace, models: Sequence[Model], folder: Path) -> Measurements:
    """Return the measurements of tensoropt-profile for the models in ``--budget`` seconds."""
    request = ProfileRequest(
        models, given.ranks, RankOptions(threads=1), "here", "cpu", given.quick, given.budget
    )
    return run(request, folder, _say).measured


def _models(names: Sequence[str], folder: Path) -> list[Model]:
    return [prepare_model(_path(name, folder), zoo.DIMS.get(name, {})) for name in names]


def _path(name: str, folder: Path) -> Path:
    if name in _TRANSFORMERS:
        return _TRANSFORMERS[name].build(name).save(folder, seed=0)
    return zoo.provide(name, folder)


def main() -> None:
    """Print the tables."""
    given = _parser().parse()
    begun_s, busy = time.monotonic(), None if given.samples else busy_fraction(1.0)
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as name:
        folder = Path(name)
        models = [] if given.samples else _models(given.models, folder)
        measured = read_samples(given.samples) if given.samples else measure(given, models, folder)
        others = _rankings(given, folder)
        if given.save is not None:
            write_samples(given.save, measured)
            write_samples(_ranked_path(given.save), replace(measured, common=[], plans=others))
        rows = rows_of(measured)
        rankings = rankings_of(others, fitted(measured, measured.plans))
    how = "from saved measurements"
    if given.samples is None:
        taken_s = time.monotonic() - begun_s
        how = f"{taken_s:.0f} s; other work had {busy or 0:.0%} of the cores"
    about = (
        f"{measured.machine.processor}, {len(rows)} plans of {len({row.model for row in rows})} "
        f"models, {how}. {_GOALS.capitalize()}."
    )
    text = "\n".join([*table(rows, rankings), "", about])
    print(text)
    if given.write:
        draw(rows, rankings, _PICTURE)
        write_section("truth-time", _section(text))


def _rankings(given: argparse.Namespace, folder: Path) -> list[PlanSample]:
    """Return the ranked plans: measured, or from the file next to ``--from``."""
    if given.samples is not None:
        kept = _ranked_path(given.samples)
        return read_samples(kept).plans if kept.exists() else []
    models = _models(given.ranking, folder)
    return [plan for m in models for plan in ranked(m, given.ranks, given.plans, folder)]


def _ranked_path(path: Path) -> Path:
    return path.with_suffix(".ranked.jsonl")


def _section(text: str) -> str:
    return f"""## Accuracy of predicted times

`python bench/accuracy/step_time.py --write`: the mean of |predicted / measured - 1| over the
plans that tensoropt-profile measures of each model, on ranks of one thread. Others: the
description was fitted to the plans of the other half of the models. Held out: to all plans
except this plan. Own: to all plans. The second table has plans of the frontier, of other
searches and random plans, predicted from the description that was fitted to all plans above. Of
a turn: the correlation of a turn of measurements with the fastest of the other turns, "-" if
turns were not saved. The last column is the excess time of the plan that is predicted fastest
over the fastest.

{text}

![Predicted against measured time of plans](truth-time.svg)
"""


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--models", nargs="+", default=MODELS, help="models to measure (default all)")
    add("--ranking", nargs="*", default=["gpt", "squeezenet"], help="models with ranked plans")
    add("--plans", type=int, default=20, help="number of ranked plans of each model")
    add("--ranks", type=int, default=2, help="largest number of ranks (default 2)")
    add("--budget", type=float, default=360.0, help="seconds for tensoropt-profile")
    add("--quick", action="store_true", help="one round of plans, smaller messages")
    add("--save", type=Path, metavar="FILE.jsonl", help="save the measurements")
    add(
        "--from",
        dest="samples",
        type=Path,
        metavar="FILE.jsonl",
        help="evaluate saved measurements",
    )
    add("--write", action="store_true", help="into docs/benchmarks.md, with a picture")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))

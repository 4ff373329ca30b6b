"""The study in Markdown, and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cluster.costs import Costs
from cluster.study import BASE, OURS, POLICIES, Figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["figures_table", "growth_table", "plot", "ratio_table", "spread_table"]

_HOUR = 3600.0
_DAY = 24 * _HOUR


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


def figures_table(runs: Sequence[Figures], costs: str) -> str:
    """Return a line per load and policy, for one setting of the costs of a switch."""
    heads = ["policy", "load", "average", "ratio", "median", "p95", "p99", "makespan"]
    heads += ["utilisation", "switches", "resumes", "stalled"]
    chosen = [run for run in runs if run.costs == costs]
    base = {run.load: run.average_s for run in chosen if run.policy == BASE}
    return _table(heads, (_line(run, base[run.load]) for run in chosen))


def _line(run: Figures, base_s: float) -> list[str]:
    times = (run.average_s, run.median_s, run.p95_s, run.p99_s)
    average, median, p95, p99 = (f"{time / _HOUR:.2f} h" for time in times)
    return [
        run.policy,
        f"{run.load:g}",
        average,
        f"{run.average_s / base_s:.2f}",
        median,
        p95,
        p99,
        f"{run.makespan_s / _DAY:.1f} d",
        f"{run.utilisation:.1%}",
        f"{run.switches:.2f}",
        f"{run.resumes:.2f}",
        f"{run.stalled:.2%}",
    ]


def ratio_table(runs: Sequence[Figures], costs: Sequence[Costs]) -> str:
    """Return average times over Tiresias' at the same load and costs."""
    held = {(run.policy, run.costs, run.load): run.average_s for run in runs}
    loads = sorted({run.load for run in runs})
    heads = ["policy", "a switch", "a resume", *(f"load {load:g}" for load in loads)]
    lines = []
    for name, entry in POLICIES.items():
        for cost in costs if name != BASE and not entry.aside else ():
            ratios = [held[name, cost.name, at] / held[BASE, cost.name, at] for at in loads]
            switch, resume = f"{cost.switch_s:g} s", f"{cost.resume_s:g} s"
            lines.append([name, switch, resume, *(f"{ratio:.2f}" for ratio in ratios)])
    return _table(heads, lines)


def growth_table(limits: Mapping[int | None, Sequence[Figures]]) -> str:
    """Return average times over Tiresias', a line per policy and limit of growth."""
    loads = sorted({run.load for runs in limits.values() for run in runs})
    lines = []
    for limit, runs in limits.items():
        for name in dict.fromkeys(run.policy for run in runs if run.policy != BASE):
            most = "all devices" if limit is None else f"{limit} x what it asks for"
            lines.append([name, most, *(f"{_ratio(runs, name, load):.2f}" for load in loads)])
    return _table(["policy", "at most", *(f"load {load:g}" for load in loads)], lines)


def spread_table(samples: Sequence[Sequence[Figures]]) -> str:
    """Return the least and the largest ratio of average times to Tiresias' over samples."""
    loads = sorted({run.load for run in samples[0]})
    names = [name for name in dict.fromkeys(run.policy for run in samples[0]) if name != BASE]
    lines = []
    for name in names:
        cells = []
        for load in loads:
            ratios = [_ratio(runs, name, load) for runs in samples]
            cells.append(f"{min(ratios):.2f} to {max(ratios):.2f}")
        lines.append([name, *cells])
    return _table(["policy", *(f"load {load:g}" for load in loads)], lines)


def _ratio(runs: Sequence[Figures], name: str, load: float) -> float:
    held = {run.policy: run.average_s for run in runs if run.load == load}
    return held[name] / held[BASE]


_COLOURS: Mapping[str, str] = {BASE: "0.4", "Elastic-Tiresias": "tab:orange", OURS: "tab:blue"}


def plot(runs: Sequence[Figures], costs: Sequence[Costs], path: Path) -> None:
    """Draw average times over Tiresias', and all times at load 1. The output is deterministic."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "tensoropt"}):
        figure = Figure(figsize=(9.0, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        _ratios(left, runs, costs)
        _times(right, runs, costs[0].name)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _ratios(axes: Axes, runs: Sequence[Figures], costs: Sequence[Costs]) -> None:
    base = {(run.costs, run.load): run.average_s for run in runs if run.policy == BASE}
    for name, colour in _COLOURS.items():
        for cost, style in zip(costs, ("-", "--", ":"), strict=True):
            if name == BASE and cost is not costs[0]:
                continue
            own = [run for run in runs if run.policy == name and run.costs == cost.name]
            ratios = [run.average_s / base[run.costs, run.load] for run in own]
            label = name if name == BASE else f"{name}, {cost.switch_s:g} s"
            loads = [run.load for run in own]
            axes.plot(loads, ratios, style, color=colour, label=label, marker=".")
    axes.set_xlabel("load")
    axes.set_ylabel("average completion time over Tiresias'")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _times(axes: Axes, runs: Sequence[Figures], costs: str) -> None:
    loads = sorted({run.load for run in runs}, key=lambda load: abs(load - 1))
    for name, colour in _COLOURS.items():
        own = (run for run in runs if (run.policy, run.costs, run.load) == (name, costs, loads[0]))
        times = np.sort(next(own).times_s) / _HOUR
        shares = np.linspace(0, 1, 400)
        axes.plot(np.quantile(times, shares), shares, color=colour, label=name)
    axes.set_xscale("log")
    axes.set_xlabel(f"completion time at load {loads[0]:g} (hours)")
    axes.set_ylabel("jobs")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")

"""Results of elastic jobs as tables, a picture, and a file of figures."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sections import write_section

from elasticity.curves import Curve
from elasticity.overhead import SNAPSHOT_EVERY, WAYS, Way, added_share, quartiles
from elasticity.stalls import Move

__all__ = ["curve_facts", "move_facts", "overhead_facts", "write_all"]

_DOCS = Path(__file__).parents[2] / "docs"
_FIGURES = _DOCS / "elastic-stalls.json"
_PICTURE = _DOCS / "elastic-stalls.svg"
_PHASES = ("stop", "move", "start", "first_step")
_TARGET = 0.05  # of stop-resume's stall: EDL reports 95% less (arXiv 1909.11985)
_SNAPSHOT = 50  # steps between snapshots in the table

Facts = Sequence[Mapping[str, Any]]


def move_facts(name: str, move: Move, copied_per_s: float) -> dict[str, Any]:
    """Return the figures of one kind of switch, in seconds and bytes."""
    live = move.stalls["live"]
    moved = live[0].result.moved_bytes
    stall_s, resumed_s = move.median_s("live"), move.median_s("stop-resume")
    return {
        "model": name,
        "from": move.before,
        "to": move.after,
        "live_s": stall_s,
        "resumed_s": resumed_s,
        "ratio": stall_s / resumed_s,
        "limit_s": 2 * move.step_s + moved / copied_per_s,
        "step_s": move.step_s,
        "moved_bytes": moved,
        "copied_per_s": copied_per_s,
        "phases_s": {phase: move.phase_s("live", phase) for phase in _PHASES},
        "prepared_s": statistics.median(stall.result.prepared_s for stall in live),
        "slower": statistics.median(stall.meanwhile_s / stall.before_s for stall in live),
        "count": len(live),
    }


def overhead_facts(name: str, ways: Mapping[str, Way]) -> dict[str, Any]:
    """Return the figures of a coordinator: parts of a step, and the number of compared steps."""
    plain = ways[WAYS[0]]
    snapshots = {
        kind: added_share(ways, WAYS[2], cpu=is_cpu) - added_share(ways, WAYS[1], cpu=is_cpu)
        for kind, is_cpu in (("wall", False), ("cpu", True))
    }
    return {
        "model": name,
        "step_cpu_s": statistics.median(plain.cpu_s),
        "steps": min(way.steps for way in ways.values()),
        "wall": added_share(ways, WAYS[1], cpu=False),
        "wall_quartiles": quartiles(ways, WAYS[1]),
        "cpu": added_share(ways, WAYS[1], cpu=True),
        **{f"snapshots_{k}": v * SNAPSHOT_EVERY / _SNAPSHOT for k, v in snapshots.items()},
    }


def curve_facts(name: str, curve: Curve) -> dict[str, Any]:
    """Return the figures of a curve."""
    return {
        "model": name,
        "steps": len(curve.rows),
        "switches": len(curve.switches),
        "difference": curve.difference,
        "samples": curve.samples,
        "wrong": curve.wrong,
    }


def write_all(found: Mapping[str, Facts], *, is_kept: bool) -> str:
    """Return the text of all parts; with ``is_kept``, update the saved figures and write both."""
    if not is_kept:
        return _text(found)
    known = json.loads(_FIGURES.read_text(encoding="utf-8")) if _FIGURES.exists() else {}
    known.update(found)
    _FIGURES.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    _draw(known)
    text = _text(known)
    write_section("elastic_jobs", text)
    return text


def _text(found: Mapping[str, Facts]) -> str:
    parts = [_HEAD, _PICTURE_TEXT]
    stalls = [*found.get("stalls", ()), *found.get("large", ())]
    if stalls:
        parts += [_stall_table(stalls), _phase_table(stalls), _summary(stalls)]
    if "overhead" in found:
        parts.append(_overhead_table(found["overhead"]))
    if "curves" in found:
        parts.append(_curve_table(found["curves"]))
    return "\n\n".join(parts)


_HEAD = """\
## Elastic jobs

`make bench-elastic ARGS=--write`: a job on two shared cores that switches from plan to plan of its
family, medians. *Stop-resume* is `tensoropt-job scale --method stop-resume`, which writes a
checkpoint, ends the ranks and starts new ranks from it, alternating with live switches of the same
job. The *limit* is two steps of the faster plan, plus the time to copy the bytes that ranks took
over with one thread. Data are random; AdamW; `N-lean` is the leanest plan for N devices."""

_PICTURE_TEXT = """\
![Stalls of live switches by phase, compared with stopping and resuming](elastic-stalls.svg)"""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _stall_table(rows: Facts) -> str:
    head = ("model", "plans", "taken over", "live", "stop-resume", "live / stop-resume", "limit")
    return _table(head, [_stall_row(row) for row in rows])


def _stall_row(row: Mapping[str, Any]) -> list[str]:
    return [
        row["model"],
        f"{row['from']} to {row['to']}",
        f"{row['moved_bytes'] / 1e6:,.0f} MB",
        _ms(row["live_s"]),
        _ms(row["resumed_s"]),
        f"{row['ratio']:.1%}",
        _ms(row["limit_s"]),
    ]


def _phase_table(rows: Facts) -> str:
    head = ("model", "plans", "stop", "move", "start", "first step", "getting ready", "step")
    found = [
        [
            row["model"],
            f"{row['from']} to {row['to']}",
            *(_ms(row["phases_s"][phase]) for phase in _PHASES),
            _ms(row["prepared_s"]),
            _ms(row["step_s"]),
        ]
        for row in rows
    ]
    text = """\
Phases of a live switch: from the end of the last step until all ranks have stopped, until all have
copied, until the first step begins, and the excess of that step over later steps. *getting ready*
is the time that the next ranks prepared before the switch, while the others trained."""
    return f"{text}\n\n{_table(head, found)}"


def _summary(rows: Facts) -> str:
    stall_s = statistics.median(row["live_s"] for row in rows)
    ratio = statistics.median(row["ratio"] for row in rows)
    slower = statistics.median(row["slower"] for row in rows)
    missed = sum(row["live_s"] > row["limit_s"] for row in rows)
    above = sum(row["ratio"] > _TARGET for row in rows)
    return (
        f"The median of these switches stalls for {_ms(stall_s)}, {ratio:.1%} of stop-resume's;\n"
        f"{above} of {len(rows)} are above {_TARGET:.0%} of it, {missed} above the limit.\n"
        f"Steps take {slower:.2f} times as long while the next ranks get ready on the same cores."
    )


def _overhead_table(rows: Facts) -> str:
    head = (
        "model",
        "processor time of a step",
        "coordinator",
        "and a snapshot in 50 steps",
        "elapsed",
    )
    found = [
        [
            row["model"],
            _ms(row["step_cpu_s"]),
            f"{row['cpu']:+.1%}",
            f"{row['snapshots_cpu']:+.2%}",
            "{:+.0%} ({:+.0%} to {:+.0%})".format(row["wall"], *row["wall_quartiles"]),
        ]
        for row in rows
    ]
    text = """\
Overhead of a coordinator in a step without any switch, over `tensoropt-run`: both train plan 1 and
take turns of ten steps. Processor time is of all processes. The quartiles of the elapsed time show
the effect of other work on the machine."""
    return f"{text}\n\n{_table(head, found)}"


def _curve_table(rows: Facts) -> str:
    head = ("model", "steps", "switches", "largest relative difference of a loss", "samples read")
    found = [
        [
            row["model"],
            f"{row['steps']}",
            f"{row['switches']}",
            f"{row['difference']:.1e}",
            row["wrong"] or f"the same {row['samples']}, in order",
        ]
        for row in rows
    ]
    text = """\
Losses of a job that is switched at random among the plans for 1, 2 and 4 devices, fastest and
leanest, compared step by step with an unbroken run on one device; with dropout, a random order of
samples, and a variable learning rate. Momentum trains the CNN, which has batch normalisation."""
    return f"{text}\n\n{_table(head, found)}"


def _draw(found: Mapping[str, Facts]) -> None:
    """Draw stalls by phase, next to the stalls of stop-resume, on a logarithmic axis."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = [*found.get("stalls", ()), *found.get("large", ())]
    if not rows:
        return
    with matplotlib.rc_context({"svg.hashsalt": "tensoropt"}):
        figure = Figure(figsize=(7.0, 0.5 + 0.35 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        places = range(len(rows))
        for key, label in (("resumed_s", "stop-resume"), ("limit_s", "limit"), ("live_s", "live")):
            axes.scatter([row[key] for row in rows], places, label=label)
        names = [f"{row['model']}: {row['from']} to {row['to']}" for row in rows]
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlabel("stall (s)")
        axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(_PICTURE, metadata={"Date": None})

"""Time of each node, from the trace of an ONNX Runtime session."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from tensoropt.runtime.support.collectives import ALONE, JOINED, PLAIN, STARTS, WAITS

__all__ = ["Times", "kernel_times_s", "merge_ranks"]

_WAITING = frozenset({*PLAIN, *ALONE, *JOINED, *STARTS, *WAITS})
"""Operators that wait for other ranks, or start a collective."""

_KERNEL = "_kernel_time"
_TRUNCATED_US = 0.5  # the trace truncates times to whole microseconds
_KEPT = 0.1  # fraction of the runs that count, fastest first: slower runs were disturbed

Times = dict[str, tuple[str, float]]
"""Operator and time in seconds, by the name of the node."""


class _Event(TypedDict):
    """An event of a trace; microseconds."""

    name: str
    ts: float
    dur: float
    args: dict[str, str]


def kernel_times_s(
    path: Path, warm_up: int, transfers: Mapping[str, Sequence[float]] | None = None
) -> Times:
    """Return the mean kernel time of each node of a trace, without the first ``warm_up`` runs.

    A node in a loop's body counts each time that it ran. ``transfers`` has the seconds of the
    collectives in each run, from `library.recorded_times`: they replace the kernel time of a node
    that starts a collective.
    """
    events: list[_Event] = json.loads(path.read_text(encoding="utf-8"))
    events = [e for e in events if e["name"] == "model_run" or e["name"].endswith(_KERNEL)]
    # By start: a run's own event is written when it ends, after its kernels.
    events.sort(key=lambda event: (event["ts"], -event["dur"]))
    runs: list[dict[str, float]] = []
    operators: dict[str, str] = {}
    current: dict[str, float] = {}
    for event in events:
        if event["name"] == "model_run":
            current = {}
            runs.append(current)
        else:
            name = event["name"].removesuffix(_KERNEL)
            operators[name] = event["args"]["op_name"]
            current[name] = current.get(name, 0.0) + event["dur"] + _TRUNCATED_US
    counted = runs[warm_up:]
    times = {
        name: (kind, _mean([run.get(name, 0.0) for run in counted]) * 1e-6)
        for name, kind in operators.items()
    }
    for name, seconds in (transfers or {}).items():
        kind, _ = times.get(name, ("", 0.0))
        if kind in STARTS:
            times[name] = kind, _mean([*seconds][warm_up:])
    return times


def _mean(times: list[float]) -> float:
    kept = sorted(times)[: max(1, round(len(times) * _KEPT))]
    return sum(kept) / len(kept)


def merge_ranks(ranks: list[Times]) -> dict[str, float]:
    """Return one time per node of rank 0: the mean over the ranks, for a collective the minimum.

    The first rank to arrive at a collective waits in it for the others.
    """
    found = {}
    for name, (kind, own) in ranks[0].items():
        times = [times[name][1] for times in ranks if name in times] or [own]
        found[name] = min(times) if kind in _WAITING else sum(times) / len(times)
    return found

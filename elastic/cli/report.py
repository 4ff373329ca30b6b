"""Job records as text for people."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from tensoropt.elastic.control import Event, JobStatus, ProfileRow, StepRow, SwitchResult
from tensoropt.runtime.support.errors import printable
from tensoropt.runtime.support.tables import columns, milliseconds, size_text

__all__ = [
    "event_line",
    "json_text",
    "list_text",
    "profile_text",
    "status_line",
    "status_text",
    "step_lines",
    "switch_text",
]


def json_text(facts: Any) -> str:
    """Return one object on one line, for programs."""
    return json.dumps(facts, allow_nan=False)


def status_line(status: JobStatus) -> str:
    """Return a job's status in one line."""
    parts = [f"{status.state}, step {status.step} of {status.steps}"]
    if status.loss is not None:
        parts.append(f"loss {status.loss:.6g}")
    if status.step_time_s is not None:
        parts.append(milliseconds(status.step_time_s))
    if status.samples_per_s is not None:
        parts.append(f"{status.samples_per_s:.4g} samples/s")
    parts.append(f"{_devices(status.devices)} (plan {printable(status.plan)})")
    if status.switching_to is not None:
        parts.append(f"to plan {printable(status.switching_to)}")
    return ", ".join(parts)


def status_text(status: JobStatus) -> str:
    """Return a job's status and a table of its ranks."""
    lines = [f"{printable(status.name)}: {status_line(status)}"]
    if status.error is not None:
        lines.append(f"error: {printable(status.error)}")
    lines.append(f"generation {status.generation} of family {printable(status.family)}")
    if status.started_at:
        end = "" if status.ended_at is None else f", ended {_date(status.ended_at)}"
        lines.append(f"started {_date(status.started_at)}{end}")
    if status.snapshot_step is not None:
        lines.append(f"snapshot after step {status.snapshot_step}")
    rows = []
    for rank in status.ranks:
        time_text = "-" if rank.own_time_s is None else milliseconds(rank.own_time_s)
        rows.append([str(rank.rank), printable(rank.device), _cell(rank.pid), time_text])
    if rows:
        lines += columns([["rank", "device", "pid", "own time"], *rows])
    return "\n".join(lines)


def event_line(event: Event) -> str:
    """Return an event as a line."""
    moment = time.strftime("%H:%M:%S", time.localtime(event.time))
    return f"{moment}  step {event.step}  {event.kind:<10}  {printable(event.text)}"


def step_lines(rows: Sequence[StepRow]) -> list[str]:
    """Return the log as a table."""
    head = ["step", "loss", "time", "devices", "generation"]
    cells = [
        [
            str(row.step),
            "no number" if row.loss is None else f"{row.loss:.6g}",
            milliseconds(row.time_s),
            str(row.devices),
            str(row.generation),
        ]
        for row in rows
    ]
    return columns([head, *cells])


def profile_text(rows: Sequence[ProfileRow]) -> str:
    """Return throughput by number of devices as a table."""
    head = ["devices", "plan", "predicted", "measured", "in steps", "memory per device", ""]
    cells = [
        [
            str(row.devices),
            printable(_cell(row.plan)),
            _rate(row.predicted_samples_per_s),
            _rate(row.measured_samples_per_s),
            str(row.measured_steps),
            size_text(row.process_bytes),
            printable(row.why_not or ""),
        ]
        for row in rows
    ]
    return "\n".join(columns([head, *cells]))


def switch_text(switch: SwitchResult) -> str:
    """Return a completed switch and its cost, in one line."""
    phases = ", ".join(f"{name} {milliseconds(time_s)}" for name, time_s in switch.phases_s.items())
    return (
        f"{_devices(switch.from_devices)} -> {switch.to_devices} after step {switch.step}, "
        f"{switch.method}: prepared in {switch.prepared_s:.3g} s, "
        f"stalled {milliseconds(switch.stall_s)}"
        f"{f' ({phases})' if phases else ''}, "
        f"moved {size_text(switch.moved_bytes)} ({switch.moved_by})"
    )


def list_text(jobs: Sequence[tuple[str, JobStatus | None, str]]) -> str:
    """Return jobs as a table: name, status or None, and a state to print without a status."""
    head = ["job", "state", "step", "devices", "loss", "started"]
    return "\n".join(columns([head, *(_job_row(*job) for job in jobs)]))


def _job_row(name: str, status: JobStatus | None, state: str) -> list[str]:
    if status is None:
        return [name, printable(state), "-", "-", "-", "-"]
    loss = "-" if status.loss is None else f"{status.loss:.6g}"
    started = _date(status.started_at) if status.started_at else "-"
    step = f"{status.step} of {status.steps}"
    return [name, status.state, step, str(status.devices), loss, started]


def _devices(count: int) -> str:
    return f"{count} device" if count == 1 else f"{count} devices"


def _date(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _rate(per_s: float | None) -> str:
    return "-" if per_s is None else f"{per_s:.4g} samples/s"


def _cell(value: object) -> str:
    return "-" if value is None else str(value)

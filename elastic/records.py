"""JSON forms of a job's records: in its folder, over HTTP and on the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from tensoropt.elastic.control import (
    Event,
    JobStatus,
    ProfileRow,
    RankStatus,
    StepRow,
    SwitchResult,
)

__all__ = [
    "event_from",
    "facts_of",
    "json_line",
    "profile_row_from",
    "status_from",
    "step_from",
    "switch_from",
]

_Record = TypeVar("_Record", JobStatus, RankStatus, Event, StepRow, ProfileRow)


def facts_of(record: JobStatus | Event | StepRow | ProfileRow | SwitchResult) -> dict[str, Any]:
    """Return the record as JSON values; a figure that is not finite becomes None."""
    facts = record.facts() if isinstance(record, SwitchResult) else vars(record)
    plain: dict[str, Any] = _plain(facts)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return _plain(vars(value)) if isinstance(value, RankStatus) else value


def json_line(facts: Any) -> str:
    """Return ``facts`` as one line of JSON, with a newline."""
    return json.dumps(facts, allow_nan=False) + "\n"


def _record(cls: type[_Record], facts: Mapping[str, Any]) -> _Record:
    """Return the record with these facts; ignore unknown fields, which a newer version may add."""
    known = {name: facts[name] for field in fields(cls) if (name := field.name) in facts}
    record: _Record = cls(**known)
    return record


def status_from(facts: Mapping[str, Any]) -> JobStatus:
    """Return the status with these JSON fields."""
    ranks = tuple(_record(RankStatus, rank) for rank in facts.get("ranks", ()))
    return _record(JobStatus, {**facts, "ranks": ranks})


def event_from(facts: Mapping[str, Any]) -> Event:
    """Return the event with these JSON fields."""
    return _record(Event, facts)


def step_from(facts: Mapping[str, Any]) -> StepRow:
    """Return the step with these JSON fields."""
    return _record(StepRow, facts)


def profile_row_from(facts: Mapping[str, Any]) -> ProfileRow:
    """Return the row with these JSON fields."""
    return _record(ProfileRow, facts)


def switch_from(facts: Mapping[str, Any]) -> SwitchResult:
    """Return the switch with these `SwitchResult.facts`."""
    names = {"from_devices": "from", "to_devices": "to"}
    return SwitchResult(
        **{field.name: facts[names.get(field.name, field.name)] for field in fields(SwitchResult)}
    )

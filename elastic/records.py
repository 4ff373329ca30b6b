"""What a job says of itself, as JSON: in its folder, over HTTP and on the command line."""

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
    """Return what JSON can hold; a figure that is no number, such as a loss of NaN, is None."""
    facts = record.facts() if isinstance(record, SwitchResult) else vars(record)
    plain: dict[str, Any] = _plain(facts)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(held) for key, held in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(held) for held in value]
    return _plain(vars(value)) if isinstance(value, RankStatus) else value


def json_line(facts: Any) -> str:
    """Return ``facts`` as one line of JSON, with its end."""
    return json.dumps(facts, allow_nan=False) + "\n"


def _record(cls: type[_Record], facts: Mapping[str, Any]) -> _Record:
    """Return the record with these facts; those that a newer version may add are left out."""
    known = {name: facts[name] for field in fields(cls) if (name := field.name) in facts}
    record: _Record = cls(**known)
    return record


def status_from(facts: Mapping[str, Any]) -> JobStatus:
    """Return the status whose facts JSON held."""
    ranks = tuple(_record(RankStatus, rank) for rank in facts.get("ranks", ()))
    return _record(JobStatus, {**facts, "ranks": ranks})


def event_from(facts: Mapping[str, Any]) -> Event:
    """Return the event whose facts JSON held."""
    return _record(Event, facts)


def step_from(facts: Mapping[str, Any]) -> StepRow:
    """Return the step whose facts JSON held."""
    return _record(StepRow, facts)


def profile_row_from(facts: Mapping[str, Any]) -> ProfileRow:
    """Return the row whose facts JSON held."""
    return _record(ProfileRow, facts)


def switch_from(facts: Mapping[str, Any]) -> SwitchResult:
    """Return the switch whose `SwitchResult.facts` JSON held."""
    names = {"from_devices": "from", "to_devices": "to"}
    return SwitchResult(
        **{field.name: facts[names.get(field.name, field.name)] for field in fields(SwitchResult)}
    )

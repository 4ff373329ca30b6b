"""Request and response models of the API, for validation and the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tensoropt.elastic.control import Event, JobStatus, ProfileRow, RankStatus, StepRow
from tensoropt.elastic.records import facts_of

__all__ = [
    "MOST_STEPS",
    "MOST_WAIT_S",
    "Ended",
    "Error",
    "Events",
    "Migrate",
    "Profile",
    "Scale",
    "Steps",
    "Stop",
    "Switch",
    "SwitchState",
    "example_status",
]

MOST_WAIT_S = 60.0
"""Longest wait of a request, in seconds; clients that wait longer send another request."""

MOST_STEPS = 100_000
"""Most steps that one request may read."""

_EXAMPLE_SWITCH: dict[str, Any] = {
    "from": 2,
    "to": 4,
    "step": 117,
    "method": "live",
    "prepared_s": 6.2,
    "stall_s": 0.094,
    "moved_bytes": 10485760,
    "moved_by": "memory",
    "phases_s": {"publish": 0.031, "take": 0.048, "first_step": 0.015},
}

Method = Annotated[
    Literal["live", "stop-resume"],
    Field(description="live: from memory to memory; stop-resume: through a checkpoint on disk"),
]
WaitS = Annotated[
    float,
    Field(
        ge=0.0,
        le=MOST_WAIT_S,
        allow_inf_nan=False,
        description="how long to wait for the end before answering, in seconds",
    ),
]


class _Asked(BaseModel):
    """A request body: no type conversions, and unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Scale(_Asked):
    """Continue with a number of devices, or with another plan of the family."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"devices": 4, "wait_s": 30}]})

    devices: int = Field(ge=1, le=1 << 20, description="number of devices")
    plan: str | None = Field(None, max_length=255, description="its name in the family")
    method: Method = "live"
    wait_s: WaitS = 0.0


class Migrate(_Asked):
    """Continue on the same number of other devices, or with new processes."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"to": ["cpu:2", "cpu:3"]}]})

    to: list[Annotated[str, Field(max_length=255)]] | None = Field(
        None, min_length=1, max_length=4096, description="devices; null: free devices first"
    )
    method: Method = "live"
    wait_s: WaitS = 0.0


class Stop(_Asked):
    """Write a checkpoint and end."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"wait_s": 30}]})

    wait_s: WaitS = 0.0


class Error(BaseModel):
    """An error, in one line."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"error": "a switch is under way"}]})

    error: str


class Switch(BaseModel):
    """A completed switch, after step ``step``. stall_s is the time without a running step, plus the
    extra time of the first step after the switch; moved_bytes counts the copied bytes."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_SWITCH]})

    from_: int = Field(alias="from", description="devices before")
    to: int = Field(description="devices after")
    step: int
    method: Method
    prepared_s: float
    stall_s: float
    moved_bytes: int
    moved_by: str = Field(description="path of the copy: memory, device, host or file")
    phases_s: dict[str, float]


class SwitchState(BaseModel):
    """A switch that was requested over HTTP, by its number."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"number": 1, "state": "done", "result": _EXAMPLE_SWITCH, "error": None}]
        }
    )

    number: int
    state: Literal["under way", "done", "refused"]
    result: Switch | None = Field(description="of a completed switch")
    error: str | None = Field(description="reason of a refusal")


class Ended(BaseModel):
    """The answer to a stop: ``ended`` is true once the job has ended."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ended": True}]})

    ended: bool


class Events(BaseModel):
    """Events in order."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "events": [
                        facts_of(
                            Event(3, 1.8e9, 117, "switched", "from 2 devices to 4", _EXAMPLE_SWITCH)
                        )
                    ]
                }
            ]
        }
    )

    events: list[Event]


class Steps(BaseModel):
    """Steps in order; with ``every`` above 1, means of that number of steps, under the last one's
    number."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"every": 1, "steps": [facts_of(StepRow(117, 0.42, 0.093, 2, 1))]}]
        }
    )

    every: int
    steps: list[StepRow]


class Profile(BaseModel):
    """Throughput by number of devices."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"rows": [facts_of(ProfileRow(2, "2", 310.0, 288.0, 117, 128 << 20))]}]
        }
    )

    rows: list[ProfileRow]


def example_status() -> dict[str, Any]:
    """Return the example status of the OpenAPI description."""
    ranks = tuple(RankStatus(rank, f"cpu:{rank}", 4000 + rank, 0.081) for rank in range(2))
    status = JobStatus(
        "bert",
        "training",
        117,
        1000,
        2,
        "2",
        1,
        "families/bert",
        0.42,
        0.093,
        345.0,
        110,
        None,
        1.8e9,
        None,
        ranks,
    )
    return facts_of(status)

"""The job description of a pool's ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensoropt.runtime.support.job import Launched
from tensoropt.runtime.support.rank_options import SessionOptions

__all__ = ["MAX_IN_FLIGHT", "REPLACED", "PoolJob"]

MAX_IN_FLIGHT = 2
"""Most requests in flight: with two, ranks need not wait for the next request. With stages, each
has two."""

REPLACED = "a new session loads it, and a server on SIGHUP"
"""The remedy if another plan has replaced a session's plan in its folder."""


@dataclass(frozen=True)
class PoolJob(Launched, SessionOptions):
    """Ranks of ``plan`` that answer requests by a ``program``, one of `programs.PROGRAMS`.

    ``options`` are the program's, as JSON. At most ``in_flight`` requests are in progress. Ranks
    refuse a plan with a digest other than ``sha256``: another plan has replaced it in its folder.
    """

    kind = "pool"
    plan: str
    program: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""
    in_flight: int = MAX_IN_FLIGHT

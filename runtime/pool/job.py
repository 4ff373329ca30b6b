"""What the process that starts a pool asks of its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensoropt.runtime.support.job import Launched

__all__ = ["AT_ONCE", "REPLACED", "PoolJob"]

AT_ONCE = 2
"""Requests that are under way at a time: ranks find the next one there when they are done."""

REPLACED = "a new session loads it, and a server on SIGHUP"
"""How to use a plan that replaced the one of a session in its folder."""


@dataclass(frozen=True)
class PoolJob(Launched):
    """Ranks of ``plan`` that answer requests by a ``program``, one of `programs.PROGRAMS`.

    ``options`` are the program's, as JSON. A request has failed after ``answer_s``, and getting
    ready after ``ready_s``, or after ``answer_s`` where that is None; a job's own limits, which
    count from its start, are not meant for ranks that stay. Ranks refuse a plan without the digest
    ``sha256``: another one has replaced it in its folder.
    """

    kind = "pool"
    plan: str
    program: str
    options: Mapping[str, Any] = field(default_factory=dict)
    custom_ops: tuple[str, ...] = ()
    answer_s: float | None = None
    ready_s: float | None = None
    sha256: str = ""

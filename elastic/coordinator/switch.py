"""One change of devices or plan, from the request to the first steps after it."""

from __future__ import annotations

import re
import statistics
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tensoropt.elastic.control import SwitchResult
from tensoropt.runtime.family.family import FamilyPlan

__all__ = ["Switch", "advice"]

_NO_MEMORY = re.compile(r"no \d+ bytes|out of memory|failed to allocate memory", re.IGNORECASE)
_STEPS_AFTER = 4  # the first step, and three to compare it with
_MOST_AFTER_S = 5.0  # in which these must end: nobody waits minutes for a comparison


@dataclass
class Switch:
    """A switch from ``from_devices`` to ``plan`` on ``devices``; times are monotonic.

    ``stopped_at`` is the end of the last step before it, ``stood_at`` the time when all ranks had
    paused, ``taken_at`` the time when all ranks of the next generation had the state.
    ``carried_bytes`` is the part of ``moved_bytes`` that was copied between nodes.
    """

    from_devices: int
    plan: FamilyPlan
    devices: tuple[str, ...]
    method: str
    future: Future[SwitchResult]
    prepared_s: float = 0.0
    moved_bytes: int = 0
    carried_bytes: int = 0
    moved_by: str = "memory"
    step: int | None = None
    stopped_at: float = 0.0
    stood_at: float = 0.0
    taken_at: float = 0.0
    _after: list[dict[str, Any]] = field(default_factory=list)

    def add_step(self, row: dict[str, Any]) -> bool:
        """Add a step after the switch; return whether there are enough to compute the stall.

        One is enough if steps are slow, for example because other work has the cores.
        """
        self._after.append(row)
        took_s = row["end_at"] - self.taken_at
        return len(self._after) >= _STEPS_AFTER or took_s > _MOST_AFTER_S

    def result(self) -> SwitchResult:
        """Return the result of the switch, after at least one step.

        The stall is the time from the end of the last step before the switch to the start of the
        first one after it, plus the extra time of that first step over the median of the next ones.
        """
        first = self._after[0]
        started_at = first["end_at"] - first["time_s"]
        usual_s = statistics.median(row["time_s"] for row in self._after[1:] or [first])
        phases = {
            "stop": self.stood_at - self.stopped_at,
            "move": self.taken_at - self.stood_at,
            "start": started_at - self.taken_at,
            "first_step": max(0.0, first["time_s"] - usual_s),
        }
        return SwitchResult(
            from_devices=self.from_devices,
            to_devices=self.plan.devices,
            step=self.step or 0,
            method=self.method,
            prepared_s=self.prepared_s,
            stall_s=sum(phases.values()),
            moved_bytes=self.moved_bytes,
            moved_by=self.moved_by,
            phases_s=phases,
        )


def advice(why: str) -> str:
    """Return a remedy for the next generation's failure, as the end of a message, or ""."""
    if _NO_MEMORY.search(why) is None:
        return ""
    return "; if both generations do not fit in memory, --method stop-resume ends the old one first"

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
_STEPS_AFTER = 4  # the first one, and some to compare it with


@dataclass
class Switch:
    """From ``from_devices`` to ``plan`` on ``devices``; times are of the clock that does not jump.

    ``stopped_at`` is the end of the last step before, ``stood_at`` when all ranks stood still with
    their state to be read, ``taken_at`` when all of the next generation had it. ``carried_bytes``
    is what of ``moved_bytes`` went from node to node.
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
        """Take down a step after the switch; says whether the stall is known now."""
        self._after.append(row)
        return len(self._after) >= _STEPS_AFTER

    def result(self) -> SwitchResult:
        """Return what the switch came to, after at least one step.

        The stall is the time from the end of the last step before to the start of the first one
        after, and by how much that one was slower than those that follow.
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
    """Return what else can be tried where the next generation failed, as more of the sentence."""
    if _NO_MEMORY.search(why) is None:
        return ""
    return "; if both generations do not fit in memory, --method stop-resume ends the first before"

"""Detection of a slow rank, by its own time per step, excluding waits for other ranks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensoropt.elastic.control import RankStatus

__all__ = ["Straggler", "Stragglers"]

_RATIO = 1.5
_FOR_S = 10.0  # for which a rank must be slow
_AGAIN_S = 300.0  # between two reports


@dataclass(frozen=True)
class Straggler:
    """A report of a slow rank and its measured times."""

    text: str
    facts: dict[str, Any]


class Stragglers:
    """Reports the slowest rank once it has exceeded ``ratio`` times the others' median for
    ``for_s`` seconds."""

    def __init__(self, ratio: float = _RATIO, for_s: float = _FOR_S) -> None:
        self._ratio, self._for_s = ratio, for_s
        self._since: tuple[int, float] | None = None
        self._named_at = -_AGAIN_S

    def begin(self) -> None:
        """Reset: a new generation trains."""
        self._since = None

    def look(self, ranks: Sequence[RankStatus]) -> Straggler | None:
        """Return a report if a rank has been slow for long enough, else None."""
        now = time.monotonic()
        slow = self._slowest(ranks)
        if slow is None:
            self._since = None
            return None
        rank, own_s, usual_s = slow
        if self._since is None or self._since[0] != rank.rank:
            self._since = rank.rank, now
        if now - self._since[1] < self._for_s or now - self._named_at < _AGAIN_S:
            return None
        self._named_at = now
        text = (
            f"rank {rank.rank} on {rank.device} takes {own_s * 1e3:.1f} ms per step by itself, "
            f"the others {usual_s * 1e3:.1f} ms"
        )
        facts = {"rank": rank.rank, "device": rank.device, "own_s": own_s, "others_s": usual_s}
        return Straggler(text, facts)

    def _slowest(self, ranks: Sequence[RankStatus]) -> tuple[RankStatus, float, float] | None:
        """Return the slowest rank, its time and the others' median, if it exceeds the ratio."""
        known = [(rank.own_time_s, rank) for rank in ranks if rank.own_time_s is not None]
        if len(known) < 2 or len(known) < len(ranks):
            return None
        own_s, rank = max(known, key=lambda pair: pair[0])
        usual_s = statistics.median(time_s for time_s, other in known if other is not rank)
        return (rank, own_s, usual_s) if own_s > self._ratio * usual_s else None

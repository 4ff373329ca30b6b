"""Which rank stays behind the others: the slowest by its own time, without waiting for others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensoropt.elastic.control import RankStatus

__all__ = ["Straggler", "Stragglers"]

_RATIO = 1.5
_FOR_S = 10.0  # that a rank has to stay behind
_AGAIN_S = 300.0  # before one is named again


@dataclass(frozen=True)
class Straggler:
    """A rank, and what was measured."""

    text: str
    facts: dict[str, Any]


class Stragglers:
    """Looks at the ranks' own times now and then; one that is slow for a while is named once."""

    def __init__(self, ratio: float = _RATIO, for_s: float = _FOR_S) -> None:
        self._ratio, self._for_s = ratio, for_s
        self._since: tuple[int, float] | None = None
        self._named_at = -_AGAIN_S

    def begin(self) -> None:
        """Forget what was seen: other ranks are at work."""
        self._since = None

    def look(self, ranks: Sequence[RankStatus]) -> Straggler | None:
        """Return the rank that has been behind long enough, None while there is none."""
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
            f"rank {rank.rank} on {rank.device} takes {own_s * 1e3:.1f} ms a step by itself, "
            f"the others {usual_s * 1e3:.1f} ms"
        )
        facts = {"rank": rank.rank, "device": rank.device, "own_s": own_s, "others_s": usual_s}
        return Straggler(text, facts)

    def _slowest(self, ranks: Sequence[RankStatus]) -> tuple[RankStatus, float, float] | None:
        """Return the slowest rank, its time, and the median of the others' if it is far off."""
        known = [(rank.own_time_s, rank) for rank in ranks if rank.own_time_s is not None]
        if len(known) < 2 or len(known) < len(ranks):
            return None
        own_s, rank = max(known, key=lambda pair: pair[0])
        usual_s = statistics.median(time_s for time_s, one in known if one is not rank)
        return (rank, own_s, usual_s) if own_s > self._ratio * usual_s else None

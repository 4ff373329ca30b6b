"""Proposals of the next tokens of a text, from its own earlier tokens."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Proposals"]

_SIZES = (3, 2)  # of the sequences that are looked up, longest first


class Proposals:
    """Finds the last tokens of a text at an earlier place, and proposes those that followed there.

    A call takes time for the tokens since the last call only.
    """

    def __init__(self) -> None:
        self._followed: dict[tuple[int, ...], int] = {}  # by the last place
        self._known = 0

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return ``most`` tokens that may follow ``tokens``, or none.

        ``tokens`` begin with those of the last call. If the earlier place is near the end, the
        tokens in between are repeated.
        """
        if most <= 0:
            return []
        for place in range(self._known, len(tokens)):
            for size in _SIZES:
                if place >= size:
                    self._followed[tuple(tokens[place - size : place])] = place
        self._known = len(tokens)
        for size in _SIZES:
            place = self._followed.get(tuple(tokens[-size:]), 0)
            if place:
                period = len(tokens) - place
                return [tokens[place + n % period] for n in range(most)]
        return []

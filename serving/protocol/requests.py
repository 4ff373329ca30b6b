"""What is asked of a model, and what it answers, whichever protocol brings it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensoropt.runtime.support.dtypes import Array
from tensoropt.serving.protocol.tensors import Requested

__all__ = ["SMALL", "Answer", "Infer"]

SMALL = 1 << 17
"""Bytes of JSON that the event loop reads itself: less than 10 ms of it."""


@dataclass(frozen=True)
class Infer:
    """A request: whole inputs by name; ``outputs`` is None where all are wanted."""

    inputs: Mapping[str, Array]
    outputs: tuple[Requested, ...] | None = None
    id: str = ""
    is_binary: bool = False
    """Whether outputs that are not named are wanted as bytes."""

    def requested(self, names: tuple[str, ...]) -> tuple[Requested, ...]:
        """Return the outputs that are wanted of a model that has ``names``."""
        if self.outputs is None:
            return tuple(Requested(name, self.is_binary) for name in names)
        return self.outputs


@dataclass(frozen=True)
class Answer:
    """The outputs that were wanted, in that order, of a model and version."""

    model: str
    version: str
    id: str
    outputs: tuple[tuple[Requested, Array], ...]

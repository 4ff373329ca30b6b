"""Inference requests and answers, independent of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensoropt.runtime.support.dtypes import Array
from tensoropt.serving.protocol.tensors import Requested

__all__ = ["SMALL", "Answer", "Infer"]

SMALL = 1 << 17
"""Bytes of JSON that the event loop parses itself, in less than 10 ms."""


@dataclass(frozen=True)
class Infer:
    """A request: whole inputs by name; ``outputs`` None requests all outputs."""

    inputs: Mapping[str, Array]
    outputs: tuple[Requested, ...] | None = None
    id: str = ""
    is_binary: bool = False
    """Default encoding when ``outputs`` is None: binary rather than JSON."""

    def requested(self, names: tuple[str, ...]) -> tuple[Requested, ...]:
        """Return the requested outputs of a model with outputs ``names``."""
        if self.outputs is None:
            return tuple(Requested(name, self.is_binary) for name in names)
        return self.outputs


@dataclass(frozen=True)
class Answer:
    """The requested outputs of a model and version, in the order of the request."""

    model: str
    version: str
    id: str
    outputs: tuple[tuple[Requested, Array], ...]

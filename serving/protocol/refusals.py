"""Refusals of a request, with their status in both protocols."""

from __future__ import annotations

from enum import Enum

from tensoropt.runtime.support.errors import printable

__all__ = ["Reason", "RefusedError"]


class Reason(Enum):
    """Reasons of a refusal; a value is the HTTP status and the name of gRPC's code."""

    INVALID = (400, "INVALID_ARGUMENT")
    UNAUTHENTICATED = (401, "UNAUTHENTICATED")
    UNKNOWN = (404, "NOT_FOUND")
    SLOW = (408, "DEADLINE_EXCEEDED")
    LARGE = (413, "RESOURCE_EXHAUSTED")
    ENCODED = (415, "INVALID_ARGUMENT")
    LEFT = (499, "CANCELLED")  # only logged, as some proxies do: the client has disconnected
    FAILED = (500, "INTERNAL")
    UNAVAILABLE = (503, "UNAVAILABLE")
    LATE = (504, "DEADLINE_EXCEEDED")

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.value[0]

    @property
    def code(self) -> str:
        """The name of gRPC's status code."""
        return self.value[1]


_LONGEST = 1000  # characters: gRPC sends the line as a header, and all headers share 8 KiB


class RefusedError(Exception):
    """Refusal of a request, with one line of error.

    The line may quote the request: control characters and lone surrogates are escaped, and a long
    line is truncated.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        line = printable(text[: _LONGEST + 1])
        super().__init__(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...")
        self.reason = reason

    def __reduce__(self) -> tuple[type[RefusedError], tuple[Reason, str]]:
        return RefusedError, (self.reason, str(self))

"""What a request may be answered with in place of a result, in both protocols."""

from __future__ import annotations

from enum import Enum

from tensoropt.runtime.support.errors import printable

__all__ = ["Reason", "RefusedError"]


class Reason(Enum):
    """Why; the values are the status of HTTP and the name of gRPC's code."""

    INVALID = (400, "INVALID_ARGUMENT")
    UNKNOWN = (404, "NOT_FOUND")
    SLOW = (408, "DEADLINE_EXCEEDED")
    LARGE = (413, "RESOURCE_EXHAUSTED")
    ENCODED = (415, "INVALID_ARGUMENT")
    LEFT = (499, "CANCELLED")  # as some proxies log it: nobody is there to see it
    FAILED = (500, "INTERNAL")
    UNAVAILABLE = (503, "UNAVAILABLE")
    LATE = (504, "DEADLINE_EXCEEDED")

    @property
    def status(self) -> int:
        """The status of HTTP."""
        return self.value[0]

    @property
    def code(self) -> str:
        """The name of gRPC's status code."""
        return self.value[1]


_LONGEST = 1000  # characters: gRPC sends a line as a header, of at most 8 KiB with all others


class RefusedError(Exception):
    """A request that gets one line of error instead of outputs.

    The line may quote the request: control characters and lone surrogates are escaped, and a long
    line is cut.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        line = printable(text[: _LONGEST + 1])
        super().__init__(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...")
        self.reason = reason

    def __reduce__(self) -> tuple[type[RefusedError], tuple[Reason, str]]:
        return RefusedError, (self.reason, str(self))

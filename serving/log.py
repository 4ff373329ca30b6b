"""The log of a server: lines for people, or JSON, one object per line.

A request is logged when it ends: its status, duration, id, and the cause of a refusal.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from traceback import extract_tb
from typing import Any

from tensoropt.runtime.support.errors import one_line, printable
from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["ID_HEADER", "LOG", "RequestLine", "log_request", "note", "set_up"]

ID_HEADER = "x-request-id"
"""The HTTP header, and the gRPC metadata key, of a request's id."""

LOG = logging.getLogger("tensoropt.serving")
_REQUESTS = LOG.getChild("requests")
_GIVEN_ID = re.compile(r"[!-~]{1,128}")
_QUIET = ("/live", "/ready", "/metrics", "ServerLive", "ServerReady", "ModelReady")
"""Suffixes of the requests that probes send every few seconds: only failures are logged."""


@dataclass
class RequestLine:
    """The log line of a request in progress. ``id`` is the client's id, or a new id."""

    protocol: str
    what: str
    client: str
    id: str
    status: int = Reason.FAILED.status
    cause: str = ""
    worst: int = 0
    begun: float = field(default_factory=perf_counter)

    def facts(self) -> dict[str, Any]:
        """Return the fields of the line."""
        return {
            "protocol": self.protocol,
            "request": self.what,
            "status": self.status,
            "duration_ms": round((perf_counter() - self.begun) * 1e3, 3),
            "client": self.client,
            "request_id": self.id,
            **({"cause": self.cause} if self.cause else {}),
        }


_CURRENT: ContextVar[RequestLine | None] = ContextVar("request", default=None)


@contextmanager
def log_request(
    protocol: str, what: str, client: str, given_id: str | None
) -> Iterator[RequestLine]:
    """Log a request when it ends, with the status that its line has at that time."""
    usable = _GIVEN_ID.fullmatch(given_id or "")
    line = RequestLine(protocol, what, client, usable[0] if usable else uuid.uuid4().hex)
    token = _CURRENT.set(line)
    try:
        yield line
    finally:
        _CURRENT.reset(token)
        _log(line)


def _log(line: RequestLine) -> None:
    is_error = max(line.status, line.worst) >= Reason.FAILED.status
    is_quiet = line.status < Reason.INVALID.status and line.what.endswith(_QUIET)
    level = logging.ERROR if is_error else logging.DEBUG if is_quiet else logging.INFO
    if _REQUESTS.isEnabledFor(level):
        _REQUESTS.log(level, "", extra={"facts": line.facts()})


def note(error: Exception) -> None:
    """Record an error as the cause in the log line of the current request."""
    line = _CURRENT.get()
    if line is None:
        return
    line.cause = str(error) if isinstance(error, RefusedError) else one_line(error)
    reason = error.reason if isinstance(error, RefusedError) else Reason.FAILED
    line.worst = max(line.worst, reason.status)
    if reason is Reason.FAILED:
        line.cause += _place(error)


def _place(error: BaseException) -> str:
    """Return the file and line that raised an unexpected error."""
    while isinstance(error, RefusedError) and error.__cause__ is not None:
        error = error.__cause__
    frames = extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def set_up(*, is_json: bool = False, has_requests: bool = True) -> None:
    """Send the log and uvicorn's warnings to stderr.

    Without ``has_requests``, only requests that fail with 5xx are logged.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Objects() if is_json else _Lines())
    for logger in (LOG, logging.getLogger("uvicorn.error")):
        logger.handlers, logger.propagate = [handler], False
    LOG.setLevel(logging.INFO)
    _REQUESTS.setLevel(logging.INFO if has_requests else logging.ERROR)


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03}Z"


class _Lines(logging.Formatter):
    """Formats lines for people; the lines at startup (models, addresses) have no time."""

    def format(self, record: logging.LogRecord) -> str:
        facts = getattr(record, "facts", None)
        if facts is not None:
            cause = f": {facts['cause']}" if "cause" in facts else ""
            text = "{client} {protocol} {request} {status} {duration_ms:.1f} ms {request_id}"
            return printable(f"{_time(record)} {text.format(**facts)}{cause}")
        text = printable(record.getMessage())
        return text if record.levelno == logging.INFO else f"{_time(record)} {text}"


class _Objects(logging.Formatter):
    """Formats each line as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        facts = getattr(record, "facts", {"message": text})
        return json.dumps({"time": _time(record), "level": record.levelname.lower(), **facts})

"""Connections that give up on clients who are slow to ask, or to take their answers."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tensoropt.runtime.support.http_connection import BoundedConnection

__all__ = ["ANSWER_S", "Connection"]

ANSWER_S = 60.0
"""How long a client may take for an answer."""

_MOST_HEADERS = 1 << 16  # bytes
_MOST_AHEAD = 1000  # requests that are sent before earlier ones are answered


class Connection(BoundedConnection, HttpToolsProtocol):
    """uvicorn's, with limits that it lacks: for headers, answers, and requests sent ahead.

    Bodies are limited where they are read, see `body`.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._reading: asyncio.TimerHandle | None = None
        self._header_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._have_answer()
        super().connection_lost(exc)

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request's target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin with the request."""
        self._header_bytes = 0
        super().on_headers_complete()
        if len(self.pipeline) > _MOST_AHEAD:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Begin to wait for the client to take what was written."""
        super().pause_writing()
        self._reading = self.loop.call_later(ANSWER_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        self._have_answer()
        super().resume_writing()

    def _have_answer(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > _MOST_HEADERS:
            self.transport.abort()

"""Connections with timeouts for clients that send or receive slowly."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tensoropt.runtime.support.http_connection import MOST_HEADERS_BYTES, BoundedConnection

__all__ = ["ANSWER_S", "Connection"]

ANSWER_S = 60.0
"""Seconds that a client may take to receive an answer."""

_MOST_AHEAD = 1000  # pipelined requests: sent before earlier requests are answered


class _UntilClose(int):
    """The length of a body that ends with the connection: any part fits, and none is missing."""

    def __lt__(self, _: int) -> bool:
        return False

    def __sub__(self, _: int) -> _UntilClose:
        return self


class Connection(BoundedConnection, HttpToolsProtocol):
    """uvicorn's connection, with limits on headers, pipelined requests, and the time of an answer.

    `Body` limits bodies. Streams to clients of HTTP/1.0, such as nginx by default, end with the
    connection: they know no chunks.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._reading: asyncio.TimerHandle | None = None
        self._header_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._have_answer()
        super().connection_lost(exc)

    def on_url(self, url: bytes) -> None:
        """Count a piece of the request's target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Reset the count, and abort a connection with too many pipelined requests."""
        self._header_bytes = 0
        super().on_headers_complete()
        if self.parser.get_http_version() == "1.0":
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = _UntilClose()
        if len(self.pipeline) > _MOST_AHEAD:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Start the timeout for the client to receive the written data."""
        super().pause_writing()
        self._reading = self.loop.call_later(ANSWER_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the timeout."""
        self._have_answer()
        super().resume_writing()

    def _have_answer(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MOST_HEADERS_BYTES:
            self.transport.abort()

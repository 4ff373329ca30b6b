"""Limits on HTTP connections that uvicorn lacks, for all its protocols."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

__all__ = ["MOST_HEADERS_BYTES", "BoundedConnection"]

HEADERS_S = 10.0
"""Seconds that a client has to send the headers of a request."""

MOST_HEADERS_BYTES = 1 << 16
"""Limit on the headers of a request, and on bytes read before they are complete: parsers buffer
all of them."""

_MOST_IDLE = 512  # connections without a pending request; a process may open 1,024 files


class BoundedConnection(asyncio.Protocol):
    """A mixin, placed before one of uvicorn's HTTP protocols.

    It closes a connection that does not complete the headers of a request within `HEADERS_S`, or
    exceeds their size limit. With too many idle connections it closes the oldest, so that silent
    clients cannot block others. A malformed request gets an error in JSON.
    """

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    cycle: Any
    connections: set[Any]

    _deadline: asyncio.TimerHandle | None = None
    _bytes_ahead = 0  # of headers
    _waiting_since_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout for headers."""
        super().connection_made(transport)
        self._wait_for_headers()
        idle = [each for each in self.connections if not each.is_answering]
        if len(idle) > _MOST_IDLE:
            min(idle, key=lambda each: each._waiting_since_s).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self._have_headers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start the timeout at the first bytes of a request, stop it at the end of its headers."""
        if self._deadline is None and not self.is_answering:
            self._wait_for_headers()
        super().data_received(data)
        if self.is_answering:
            self._have_headers()
        if self.is_answering or self.transport.is_closing():
            return
        self._bytes_ahead += len(data)
        if self._bytes_ahead > MOST_HEADERS_BYTES:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Reject bytes that are not an HTTP request."""
        body = json.dumps({"error": msg}).encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    @property
    def is_answering(self) -> bool:
        """True if a request has arrived and its response is not complete.

        A closing connection sends no further response, although the client may not have read the
        last bytes yet.
        """
        is_open = not self.transport.is_closing()
        return is_open and self.cycle is not None and not self.cycle.response_complete

    def _wait_for_headers(self) -> None:
        self._waiting_since_s = time.monotonic()
        self._deadline = self.loop.call_later(HEADERS_S, self.transport.abort)

    def _have_headers(self) -> None:
        self._bytes_ahead = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

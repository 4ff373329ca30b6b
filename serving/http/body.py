"""Reading of request bodies, with limits on size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.protocol.requests import SMALL
from tensoropt.serving.side_process import SideProcess

__all__ = ["BODY_S", "Bodies", "Body"]

BODY_S = 30.0
"""Seconds that a client may take to send a body."""

_UNCOUNTED = 1 << 16
"""Bytes of each body that do not count, so that large bodies cannot shut out small requests.

Over all connections of a server they are at most 256 MiB.
"""

T = TypeVar("T")


class Bodies:
    """Limits the bodies of requests in progress to ``most`` bytes each and ``together`` in total.

    ``side`` parses long JSON.
    """

    def __init__(
        self, most: int, together: int | None = None, side: SideProcess | None = None
    ) -> None:
        self.most, self._together = most, 4 * most if together is None else together
        self.side = side or SideProcess(most)
        self._held = 0

    @contextmanager
    def open(self, request: Request) -> Iterator[Body]:
        """Yield the body of a request, and release its share of the total at the end."""
        body = Body(self, request)
        try:
            yield body
        finally:
            self._held -= body.counted

    @contextmanager
    def count(self, size: int) -> Iterator[None]:
        """Count a received gRPC message during the context; raises `RefusedError`."""
        count = max(0, size - _UNCOUNTED)
        self.reserve(count)
        try:
            yield
        finally:
            self._held -= count

    def check_room(self, size: int) -> None:
        """Raise `RefusedError` unless ``size`` more bytes fit."""
        if self._held + size > self._together:
            raise RefusedError(
                Reason.UNAVAILABLE,
                f"body: the requests in progress have {self._held} bytes, expected at most "
                f"{self._together} in total (--max-bodies), got: {size} more",
            )

    def reserve(self, size: int) -> None:
        """Count ``size`` more bytes; raises `RefusedError` unless they fit."""
        self.check_room(size)
        self._held += size


class Body:
    """The body of one request."""

    def __init__(self, bodies: Bodies, request: Request) -> None:
        self._bodies, self._request = bodies, request
        self._found: bytearray | None = None
        self.counted = 0

    async def read(self) -> bytearray:
        """Return the whole body; raises `RefusedError`.

        A large body is refused by its Content-Length before any of it is read, or as soon as it
        exceeds the limit. The connection is then closed.
        """
        if self._found is None:
            self._check_headers()
            try:
                async with asyncio.timeout(BODY_S):
                    self._found = await self._receive()
            except TimeoutError:
                raise RefusedError(Reason.SLOW, f"body: expected within {BODY_S:g} s") from None
            except ClientDisconnect:
                raise RefusedError(Reason.LEFT, "body: the client disconnected") from None
        return self._found

    async def parse(self, parse: Callable[..., T], *more: object) -> T:
        """Parse the body with ``parse``, in the side process if it is long.

        Raises `RefusedError`.
        """
        found = await self.read()
        if len(found) <= SMALL:
            return parse(found, *more)
        return await self._bodies.side.run(parse, found, *more)

    def _check_headers(self) -> None:
        encoding = self._request.headers.get("content-encoding", "identity")
        if encoding.strip().lower() != "identity":
            raise RefusedError(
                Reason.ENCODED, f"Content-Encoding: expected none, got: '{encoding:.20}'"
            )
        length, most = self._request.headers.get("content-length", "0"), self._bodies.most
        if not (length.isascii() and length.isdecimal()) or int(length[:20]) > most:
            raise self._too_large(f"{length:.20}")
        self._bodies.check_room(max(0, int(length[:20]) - _UNCOUNTED))

    async def _receive(self) -> bytearray:
        body = bytearray()
        async for piece in self._request.stream():
            if len(body) + len(piece) > self._bodies.most:
                raise self._too_large("more")
            count = max(0, len(body) + len(piece) - _UNCOUNTED) - self.counted
            self._bodies.reserve(count)
            self.counted += count
            body += piece
        return body

    def _too_large(self, found: str) -> RefusedError:
        return RefusedError(
            Reason.LARGE,
            f"body: expected at most {self._bodies.most} bytes (--max-body), got: {found}",
        )

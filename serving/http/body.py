"""Reading a request's body: not more than allowed, and not longer."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["BODY_S", "body_of"]

BODY_S = 30.0
"""How long a client may take for a body."""


async def body_of(request: Request, most: int) -> bytearray:
    """Return the whole body, of at most ``most`` bytes; raises `RefusedError`.

    What is too large is refused by its Content-Length, before any of it is read, or else as soon as
    more has come. The connection is closed after that.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise RefusedError(
            Reason.ENCODED, f"Content-Encoding: expected none, got: '{encoding:.20}'"
        )
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()) or int(length[:20]) > most:
        raise _too_large(most, f"{length:.20}")
    try:
        async with asyncio.timeout(BODY_S):
            return await _received(request, most)
    except TimeoutError:
        raise RefusedError(Reason.SLOW, f"body: expected within {BODY_S:g} s") from None
    except ClientDisconnect:
        raise RefusedError(Reason.LEFT, "body: the client went away") from None


async def _received(request: Request, most: int) -> bytearray:
    body = bytearray()
    async for piece in request.stream():
        if len(body) + len(piece) > most:
            raise _too_large(most, "more")
        body += piece
    return body


def _too_large(most: int, found: str) -> RefusedError:
    return RefusedError(
        Reason.LARGE, f"body: expected at most {most} bytes (--max-body), got: {found}"
    )

"""Clients that close their connection before their answer: it is not computed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request

from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["unless_left"]

T = TypeVar("T")


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, which is cancelled when the client goes away.

    The body must have been read. Raises `RefusedError` when the client has gone.
    """
    working, leaving = asyncio.create_task(work), asyncio.create_task(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise RefusedError(Reason.LEFT, "the client went away before its answer was there")
    finally:
        for task in (leaving, working):
            task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await working


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

"""Cancellation of requests after their client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request

from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["unless_disconnected"]

T = TypeVar("T")


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, which is cancelled when the client disconnects.

    The body must have been read. Raises `RefusedError` if the client has disconnected.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise RefusedError(Reason.LEFT, "the client disconnected before its answer")
    finally:
        for task in (leaving, working):
            task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await working


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

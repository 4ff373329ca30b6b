"""Threads that convert texts to tokens, apart from those of other work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["convert", "refusing"]

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = ThreadPoolExecutor(4, "texts")
"""A text that waits for a thread is not converted if its request ends before."""


async def convert(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Return the result of ``work`` on a text in a thread. Raises `RefusedError`.

    The work is bounded by a number of tokens, so that a server can end soon.
    """
    with refusing():
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_THREADS, partial(work, *given, **named))


@contextmanager
def refusing() -> Iterator[None]:
    """Raise a `UserError` as a `RefusedError`."""
    try:
        yield
    except UserError as error:
        raise RefusedError(Reason.INVALID, one_line(error)) from None

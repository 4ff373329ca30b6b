"""Errors of one text, which end that text alone.

Texts run together, on ranks and in the process that started them. Work for one of them runs within
`isolated`: choosing its tokens, keeping to its grammar, converting them to text, finding its stops,
and delivering its pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tensoropt.runtime.support.errors import UserError, cause_of, is_failure

__all__ = ["TextFailedError", "isolated"]


class TextFailedError(UserError):
    """Failure of a text by no fault of its request, such as scores that are not finite."""


@contextmanager
def isolated(fail: Callable[[UserError], object]) -> Iterator[None]:
    """Pass an error of the work for one text to ``fail``, instead of raising it.

    On ranks, the work depends only on data that all of them have, so all of them pass the same
    error. A lack of memory may concern one rank alone, and ends all texts.
    """
    try:
        yield
    except BaseException as error:
        if not is_failure(error):
            raise
        fail(error if isinstance(error, UserError) else TextFailedError(cause_of(error)))

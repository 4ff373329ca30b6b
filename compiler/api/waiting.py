"""What is said to a person who waits in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tensoropt.compiler.api.program import Say, silent
from tensoropt.compiler.support.progress import Progress

__all__ = ["said_to"]


@contextmanager
def said_to(progress: bool | Callable[[str], None]) -> Iterator[Say]:
    """Yield what to call with a line of text: nothing, stderr, or ``progress`` itself."""
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield silent
    else:
        say = Progress(asked=True)
        try:
            yield say
        finally:
            say.clear()

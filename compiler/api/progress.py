"""Progress reports for the Python API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tensoropt.compiler.api.program import Say, silent
from tensoropt.compiler.support.progress import Progress

__all__ = ["reporting_to"]


@contextmanager
def reporting_to(progress: bool | Callable[[str], None]) -> Iterator[Say]:
    """Yield the function that reports a line of text: to nobody, to stderr, or ``progress``."""
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

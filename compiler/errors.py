"""The one error a user of the compiler can cause."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["UserError", "did_you_mean"]


class UserError(Exception):
    """A mistake in the input: one line saying where, what is wrong and what would be right.

    The command line prints it as ``error: <text>`` and exits with status 1, without a traceback.
    """


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return ``", did you mean 'x'?"`` for the nearest of ``choices``, or an empty string."""
    near = difflib.get_close_matches(word, list(choices), n=1)
    return f", did you mean '{near[0]}'?" if near else ""

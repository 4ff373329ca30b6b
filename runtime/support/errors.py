"""The errors that commands print as one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "RankFailedError",
    "TensoroptError",
    "UserError",
    "did_you_mean",
    "one_line",
    "printable",
]


_LONGEST_WORD = 200  # characters: names in models may be long, too
_BOUND = "Error in execution: "  # what ONNX Runtime puts first where inputs are bound


class TensoroptError(Exception):
    """One line that names a place, a cause and a remedy: `UserError` or `RankFailedError`.

    The command line prints it as ``error: <text>`` and exits with status 1, without a traceback.
    """

    __module__ = "tensoropt"  # where people find it


class UserError(TensoroptError):
    """A mistake in the input, which the same call would find again."""

    __module__ = "tensoropt"


class RankFailedError(TensoroptError):
    """A rank died, hangs or crashed, so all ranks were ended. The same call may succeed."""

    __module__ = "tensoropt"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return ``", did you mean 'x'?"`` for the nearest of ``choices``, or an empty string.

    A very long word, which is no slip of the pen, is not compared: that would take seconds.
    """
    if len(word) > _LONGEST_WORD:
        return ""
    near = difflib.get_close_matches(word, list(choices), n=1)
    return f", did you mean '{near[0]}'?" if near else ""


def printable(text: str) -> str:
    """Return ``text`` with control characters escaped: a name from a file may hold any."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(error: BaseException) -> str:
    """Return an exception as one line, without what ONNX Runtime puts before it."""
    text = " ".join(str(error).split())
    if text.startswith("[ONNXRuntimeError]"):
        return text.split(" : ", 3)[-1]
    if text.startswith(_BOUND):
        return text.removeprefix(_BOUND)
    if isinstance(error, TensoroptError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

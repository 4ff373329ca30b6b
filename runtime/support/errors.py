"""The errors that commands print as one line."""

from __future__ import annotations

import errno
from collections.abc import Iterable

__all__ = [
    "RankFailedError",
    "TensoroptError",
    "UserError",
    "cause_of",
    "did_you_mean",
    "is_failure",
    "one_line",
    "printable",
    "shortage",
]


_LONGEST_WORD = 200  # characters: names in models may be long, too
_ELSEWHERE = "free some space or choose another place"
_REMEDIES = {
    errno.ENOSPC: _ELSEWHERE,
    errno.EDQUOT: _ELSEWHERE,
    errno.EROFS: "choose a place that is not read-only",
    errno.EACCES: "get the right to it or choose another place",
    errno.EPERM: "get the right to it or choose another place",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (sysctl fs.file-max)",
    errno.ENOMEM: "free some memory or raise its limit (ulimit -v)",
    errno.EAGAIN: "raise the limit of processes (ulimit -u)",
}

_THREADS = "raise the limits of processes and of memory (ulimit -u, ulimit -v)"
_SHORTAGES = {
    "can't start new thread": _THREADS,
    "Resource temporarily unavailable": _THREADS,
    "failed to map segment from shared object": _REMEDIES[errno.ENOMEM],
    "cannot allocate memory": _REMEDIES[errno.ENOMEM],
    "Cannot allocate memory": _REMEDIES[errno.ENOMEM],
    "std::bad_alloc": _REMEDIES[errno.ENOMEM],
    "Memory allocation still failed": _REMEDIES[errno.ENOMEM],
    "max open files limit": _REMEDIES[errno.EMFILE],
    "Too many open files": _REMEDIES[errno.EMFILE],
}

_BOUND = "Error in execution: "  # ONNX Runtime's prefix for errors with bound inputs


class TensoroptError(Exception):
    """One line that names a place, a cause and a remedy: `UserError` or `RankFailedError`.

    The command line prints it as ``error: <text>`` and exits with status 1, without a traceback, or
    with the ``exit_status`` of the class.
    """

    __module__ = "tensoropt"  # where people find it

    exit_status: int | None = None


class UserError(TensoroptError):
    """A mistake in the input: the same call would fail again."""

    __module__ = "tensoropt"


class RankFailedError(TensoroptError):
    """A rank died or hung, so all ranks were ended. The same call may succeed."""

    __module__ = "tensoropt"


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """Return ``", did you mean 'x'?"`` for the nearest of ``choices``, or an empty string.

    Very long words are not compared, as that would take seconds and they are no typing mistakes.
    Names from Python that are not strings are not compared either.
    """
    if not isinstance(word, str) or len(word) > _LONGEST_WORD:
        return ""
    import difflib

    near = difflib.get_close_matches(word, list(choices), n=1)
    return f", did you mean '{near[0]}'?" if near else ""


def printable(text: str) -> str:
    """Return ``text`` with control characters escaped: names from files may contain any."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(error: BaseException) -> str:
    """Return an exception as one line: the file of a system error, if any, then `cause_of`."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {cause_of(error)}"
    return cause_of(error)


def cause_of(error: BaseException) -> str:
    """Return the cause of an exception in one line, for messages that name the file themselves.

    Common system errors include a remedy. Prefixes of ONNX Runtime are removed.
    """
    text = " ".join(str(error).split())
    if text.startswith("[ONNXRuntimeError]"):
        return text.split(" : ", 3)[-1]
    if text.startswith(_BOUND):
        return text.removeprefix(_BOUND)
    if isinstance(error, TensoroptError):
        return text
    if isinstance(error, OSError) and error.strerror:
        remedy = _REMEDIES.get(error.errno or 0)
        cause = error.strerror
        return f"{cause[:1].lower()}{cause[1:]}" + (f", {remedy}" if remedy else "")
    if isinstance(error, MemoryError):
        return f"out of memory, {_REMEDIES[errno.ENOMEM]}"
    remedy = shortage(text)
    found = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{found}, {remedy}" if remedy else found


def is_failure(error: BaseException) -> bool:
    """Return True if an exception concerns only the work that raised it.

    So does a panic of a library in Rust, although it is no `Exception`. A lack of memory, an
    interrupt and an exit concern the whole process.
    """
    if isinstance(error, MemoryError):
        return False
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def shortage(text: str) -> str | None:
    """Return the remedy if ``text``, of any library, reports a lack of a system resource."""
    return next((remedy for words, remedy in _SHORTAGES.items() if words in text), None)

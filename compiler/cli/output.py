"""Output of an artefact to stdout, or to a file that appears only on success."""

from __future__ import annotations

import sys
from pathlib import Path

from tensoropt.compiler.support.files import replacing
from tensoropt.runtime.support.status_line import clear_line

__all__ = ["write_text"]

_PIECE = 1 << 14


def write_text(path: Path | None, text: str) -> None:
    """Write ``text`` to ``path``, or to stdout for ``None`` and ``-``."""
    clear_line()
    if path is None or str(path) == "-":
        # An unbuffered stdout silently drops the rest of a write when the reader closes the pipe;
        # only the next write raises.
        for start in range(0, len(text), _PIECE):
            sys.stdout.write(text[start : start + _PIECE])
        return
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")

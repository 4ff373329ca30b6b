"""Where an artefact goes: stdout, or a file that appears only on success."""

from __future__ import annotations

import sys
from pathlib import Path

from tensoropt.compiler.files import replacing

__all__ = ["Progress", "write_text"]

_PIECE = 1 << 14


def write_text(path: Path | None, text: str) -> None:
    """Write ``text`` to ``path``, or to stdout for ``None`` and ``-``."""
    if path is None or str(path) == "-":
        # An unbuffered stdout drops the rest of a write whose reader leaves, without an error;
        # the next write then says so.
        for start in range(0, len(text), _PIECE):
            sys.stdout.write(text[start : start + _PIECE])
        return
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


class Progress:
    """What is being done, on one line of stderr; silent unless stderr is a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        """Show ``text`` in place of what was shown before."""
        if self._shown:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        self("")

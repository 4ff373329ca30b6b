"""Text of times and sizes, and aligned columns."""

from __future__ import annotations

__all__ = ["UNITS", "columns", "milliseconds", "size_text"]

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
"""Binary units of bytes, each 1024 times the one before."""


def columns(rows: list[list[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def milliseconds(time_s: float) -> str:
    """Return a time given in seconds as text."""
    return f"{time_s * 1e3:.3f} ms"


def size_text(size: float | None) -> str:
    """Return a size given in bytes as text, a dash if it is unknown."""
    if size is None:
        return "-"
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.4g} {UNITS[unit]}"

"""Diagnostics and their locations: a line of a text file, or a node of an ONNX model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Diagnostic", "describe", "line_of", "position_of"]

Position = tuple[str, int, int]

_REPRINT = "see current operation"


@dataclass(frozen=True)
class Diagnostic:
    """One message: ``severity`` is error, warning, note or remark, ``location`` MLIR's or None."""

    severity: str
    message: str
    location: Any = None

    @staticmethod
    def unpack(info: Any) -> list[Diagnostic]:
        """Return an MLIR diagnostic followed by its notes, copied while MLIR keeps it alive.

        The note that prints the whole operation is left out, as the location identifies it.
        """
        # The location of a diagnostic lacks its subclass, which tells a name from a file.
        location = info.location.from_attr(info.location.attr, info.location.context)
        own = Diagnostic(info.severity.name.lower(), info.message, location)
        notes = [note for note in info.notes if not note.message.startswith(_REPRINT)]
        return [own, *(part for note in notes for part in Diagnostic.unpack(note))]


def position_of(location: Any) -> Position | None:
    """Return ``(file, line, column)`` of an MLIR location, or ``None`` if it names no file.

    A name or fused location is searched for the first file inside it.
    """
    if hasattr(location, "start_line"):
        return location.filename, location.start_line, location.start_col
    if hasattr(location, "child_loc"):
        return position_of(location.child_loc)
    found = (position_of(part) for part in getattr(location, "locations", ()))
    return next((position for position in found if position), None)


def line_of(location: Any) -> int | None:
    """Return the line of an MLIR location, or ``None``."""
    position = position_of(location)
    return position[1] if position else None


def describe(location: Any) -> str:
    """Return ``file:line:column`` or ``node '<name>'``; an empty string for an unknown location."""
    if hasattr(location, "name_str"):
        return f"node '{location.name_str}'"
    position = position_of(location)
    return ":".join(map(str, position)) if position else ""

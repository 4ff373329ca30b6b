"""Failure of one part of the check, which does not stop the others."""

from __future__ import annotations

__all__ = ["RunError"]


class RunError(Exception):
    """A command or ranks failed: one line with their last output."""

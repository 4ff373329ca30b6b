"""What one part of the check fails with, so that the others go on."""

from __future__ import annotations

__all__ = ["RunError"]


class RunError(Exception):
    """A command or ranks ended badly: one line with what they said last."""

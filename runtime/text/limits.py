"""Default limits of text generation."""

from __future__ import annotations

__all__ = ["MAX_TOKENS", "SLOTS"]

MAX_TOKENS = 128
"""New tokens of a text."""

SLOTS = 16
"""Texts that ranks continue together."""

"""Default limits of text generation."""

from __future__ import annotations

__all__ = ["MAX_TOKENS", "SLOTS", "SPECULATE"]

MAX_TOKENS = 128
"""New tokens of a text."""

SLOTS = 16
"""Texts that ranks continue together."""

SPECULATE = 0
"""Tokens that are proposed for a text in a step."""

"""First opsets in which standard operators exist, or take settings as operands."""

from __future__ import annotations

__all__ = [
    "PAD_OPERANDS_SINCE",
    "SLICE_OPERANDS_SINCE",
    "SQUEEZE_OPERANDS_SINCE",
    "WHERE_SINCE",
]

WHERE_SINCE = 9

SLICE_OPERANDS_SINCE = 10
"""Slice takes its bounds as operands, so they may be known only at run time."""

PAD_OPERANDS_SINCE = 11
"""Pad takes its pads and fill value as operands."""

SQUEEZE_OPERANDS_SINCE = 13
"""Squeeze and Unsqueeze take their axes as an operand."""

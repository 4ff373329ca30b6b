"""A kernel on one rank: its family, and the sizes by which the family is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["FAMILIES", "PARTS", "Kernel"]

_SERVED = ("pairs", "group", "keys", "head_size")
_TRAINED = ("keys", "head_size")

FAMILIES: dict[str, tuple[str, ...]] = {
    "products": ("rows", "columns", "depth"),
    "attention": _TRAINED,
    "attention_gradient": _TRAINED,
    "prefill": _SERVED,
    "decoding": _SERVED,
    "experts": ("tokens", "width", "features", "experts"),
}
"""The sizes by which each family is measured.

*Products* are of ``rows x depth`` and ``depth x columns`` elements; batches count as rows, and the
window of a convolution as depth. *Attention* in training and its gradient have the keys that a
query sees on average, and elements of a head. Served attention is *decoding* with a single query
per sequence, else *prefill*: sequences times key heads, query heads per key head, keys that a query
sees on average, and elements of a head. *Experts* have the mean number of tokens of an expert, the
width of a token, the features between the layers, and the experts of the rank.
"""

PARTS = {
    family: "attention" if own is _SERVED or own is _TRAINED else family
    for family, own in FAMILIES.items()
}
"""The part of a step that each family belongs to, as reports name it."""


class Kernel(NamedTuple):
    """A kernel of ``family`` with ``sizes``, one per name in ``FAMILIES``.

    It computes ``share`` of the FLOPs of its op: causal attention skips keys that are masked.
    """

    family: str
    sizes: Sequence[float]
    share: float = 1.0

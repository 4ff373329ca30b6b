"""Reasons for which standard operators have no sharding rule, one sentence each."""

from __future__ import annotations

from tensoropt.compiler.sharding.rule.registry import registered
from tensoropt.dialects.onnx import CLASSICAL

__all__ = ["explained", "why_whole"]

_REASONS: dict[str, tuple[str, ...]] = {
    "runs graphs of its own, which see whole tensors; the rest of the model is split around it": (
        "If",
        "Loop",
        "Scan",
        "SequenceMap",
    ),
    "works on an optional, which is no tensor: no layout describes it": (
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
    ),
    "works on a sequence, which is no tensor; `unpack-sequences` replaces one of known length": (
        "ConcatFromSequence",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SplitToSequence",
    ),
    "works on strings, which no collective moves": (
        "RegexFullMatch",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
    ),
    "the sizes of its results depend on values, so that no part of them is known in advance": (
        "NonMaxSuppression",
        "NonZero",
        "Unique",
    ),
    "computes a small table from a few numbers; there is nothing to split": (
        "BlackmanWindow",
        "HammingWindow",
        "HannWindow",
        "MelWeightMatrix",
    ),
    "counts n-grams, which cross any cut": ("TfIdfVectorizer",),
    "decodes a file, which is one piece": ("ImageDecoder",),
    "has no kernel in ONNX Runtime 1.32, and its body neither": ("SwiGLU",),
}
_BY_OPERATOR = {name: reason for reason, names in _REASONS.items() for name in names}
_BY_DOMAIN = {
    CLASSICAL: "works on maps, which are no tensors: no layout describes them",
    "ai.onnx.preview": "a proposal that ONNX Runtime does not run",
    "ai.onnx.preview.training": "an optimiser's step, which ONNX Runtime does not run",
}


def explained() -> frozenset[str]:
    """Return the standard operators that have a reason."""
    return frozenset(_BY_OPERATOR)


def why_whole(name: str) -> str | None:
    """Return the reason for running operator ``name`` whole.

    Return ``None`` if it has a rule or is unknown. ``name`` has its domain as a prefix unless it is
    the standard domain.
    """
    if name in registered():
        return None
    return _BY_OPERATOR.get(name) or _BY_DOMAIN.get(name.rpartition(".")[0])

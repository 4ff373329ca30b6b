"""Checks of the attributes of standard operators: kinds, ranges, lengths and keywords.

They run before anything relies on the attributes: on import, and with operand ranks in
`verify-onnx`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensoropt.compiler.support.errors import did_you_mean
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.onnx import Schema

__all__ = ["KINDS", "Uses", "kind_problem", "value_problem"]

# AttributeProto.AttributeType (onnx.proto) -> its name there.
KINDS = {
    1: "FLOAT",
    2: "INT",
    3: "STRING",
    4: "TENSOR",
    5: "GRAPH",
    6: "FLOATS",
    7: "INTS",
    8: "STRINGS",
    9: "TENSORS",
    13: "TYPE_PROTO",
    14: "TYPE_PROTOS",
}

_SHOWN = 60  # maximum length of a value in a message


@dataclass(frozen=True)
class Uses:
    """The checked view of a node: its attributes as Python values, and the ranks of its operands.

    ``op_type`` includes the domain unless standard. A rank is ``None`` if unknown; ``outputs`` is
    the number of results.
    """

    op_type: str
    attributes: Mapping[str, Any]
    ranks: Sequence[int | None]
    outputs: int = 1

    def rank(self, index: int = 0) -> int | None:
        """Return the rank of an operand, or ``None`` if it is absent or unknown."""
        return self.ranks[index] if index < len(self.ranks) else None


Check = Callable[[Uses, Any], "str | None"]
"""Return the expected value of an attribute, or ``None`` if it is right."""


def kind_problem(found: Schema, kinds: Mapping[str, str]) -> str | None:
    """Return the problem with the names and kinds of attributes, or ``None``.

    The kind of an empty list is ``EMPTY``, since its element type is unknown.
    """
    for name, kind in () if found.is_open else kinds.items():
        if name not in found.attributes:
            return f"has an unknown attribute '{name}'{did_you_mean(name, found.attributes)}"
        wanted = KINDS.get(found.attributes[name], "a sparse tensor")
        if kind != wanted and not (kind == "EMPTY" and wanted.endswith("S")):
            return f"has a wrong kind of attribute '{name}', expected {wanted}, got: {kind}"
    missing = sorted(found.required - kinds.keys())
    return f"has no attribute '{missing[0]}', which ONNX requires" if missing else None


def value_problem(uses: Uses) -> str | None:
    """Return the problem with the value of an attribute, or ``None``."""
    for name, checks in _TABLE.get(uses.op_type, {}).items():
        value = uses.attributes.get(name)
        for check in checks if value is not None else ():
            expected = check(uses, value)
            if expected is not None:
                shown = f"'{value}'" if isinstance(value, str) else str(value)
                shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
                return f"has a wrong attribute '{name}', expected {expected}, got: {shown}"
    return None


def _least(smallest: int) -> Check:
    return lambda uses, value: None if value >= smallest else f"at least {smallest}"


def _each(smallest: int) -> Check:
    def check(uses: Uses, value: Sequence[int]) -> str | None:
        return f"at least {smallest} each" if min(value, default=smallest) < smallest else None

    return check


def _one_of(*words: int | str) -> Check:
    listed = ", ".join(map(str, words))
    return lambda uses, value: None if value in words else f"one of {listed}"


def _per_dimension(times: int = 1) -> Check:
    """Return a check for ``times`` numbers per spatial dimension, or none at all."""

    def check(uses: Uses, value: Sequence[int]) -> str | None:
        rank = uses.rank()
        wanted = None if rank is None else times * max(rank - 2, 0)
        return f"{wanted} numbers" if wanted is not None and len(value) not in (0, wanted) else None

    return check


def _even(uses: Uses, value: Sequence[int]) -> str | None:
    return "two numbers per dimension" if len(value) % 2 else None


def _axis(more: int = 0, end: int = 0, operand: int = 0) -> Check:
    """Return a check for an axis from -rank to rank - 1, of an operand with ``more`` dimensions.

    ``end`` is 1 if the axis after the last is also right.
    """

    def check(uses: Uses, value: int) -> str | None:
        rank = uses.rank(operand)
        if rank is None:
            return None
        least, most = -rank - more, rank + more - 1 + end
        return None if least <= value <= most else f"{least} to {most}"

    return check


def _axes(uses: Uses, value: Sequence[int]) -> str | None:
    rank = uses.rank()
    if rank is None:
        return None
    if any(not -rank <= axis < rank for axis in value):
        return f"axes from {-rank} to {rank - 1}"
    return "axes that differ" if len({axis % rank for axis in value}) < len(value) else None


def _new_axes(uses: Uses, value: Sequence[int]) -> str | None:
    rank = uses.rank()
    if rank is None:
        return None
    whole = rank + len(value)
    if any(not -whole <= axis < whole for axis in value):
        return f"axes from {-whole} to {whole - 1}"
    return "axes that differ" if len({axis % whole for axis in value}) < len(value) else None


def _permutation(uses: Uses, value: Sequence[int]) -> str | None:
    rank = len(value) if uses.rank() is None else uses.rank()
    assert rank is not None
    return None if sorted(value) == list(range(rank)) else f"a permutation of 0 to {rank - 1}"


def _element(uses: Uses, value: int) -> str | None:
    return None if element_of(value) is not None else "the number of an element type"


def _results(uses: Uses, value: int) -> str | None:
    return None if value == uses.outputs else f"the number of results, {uses.outputs}"


_TERM = re.compile(r"[A-Za-z]*(\.\.\.[A-Za-z]*)?")


def _equation(uses: Uses, value: str) -> str | None:
    """Check the equation of Einsum: the terms, their number and their ranks."""
    left, _, right = str(value).replace(" ", "").partition("->")
    terms = left.split(",")
    if any(_TERM.fullmatch(term) is None for term in (*terms, right)):
        return "letters, '...' once per term, ',' and '->'"
    if len(terms) != len(uses.ranks):
        return f"a term for each of {len(uses.ranks)} operands"
    for term, rank in zip(terms, uses.ranks, strict=True):
        letters = len(term.replace("...", ""))
        if rank is not None and (rank < letters or (rank > letters and "..." not in term)):
            return f"'{term}' to have {rank} dimensions"
    counts = Counter(right.replace("...", ""))
    if any(counts[letter] > 1 or letter not in left for letter in counts):
        return "each letter of the result once, and in an operand"
    return None


_PADDING = _one_of("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")

Row = Mapping[str, Sequence[Check]]

_WINDOWS: Row = {
    "auto_pad": [_PADDING],
    "dilations": [_each(1), _per_dimension()],
    "kernel_shape": [_each(1), _per_dimension()],
    "pads": [_even, _per_dimension(2)],
    "strides": [_each(1), _per_dimension()],
}
_CONVOLUTION: Row = {
    **_WINDOWS,
    "group": [_least(1)],
    "output_padding": [_each(0), _per_dimension()],
}
_BLOCKS: Row = {"blocksize": [_least(1)], "mode": [_one_of("DCR", "CRD")]}
_HEADS: Row = {
    name: [_least(1)] for name in ("num_heads", "kv_num_heads", "q_num_heads", "hidden_size")
}
_RECURRENT: Row = {
    "direction": [_one_of("forward", "reverse", "bidirectional")],
    "hidden_size": [_least(1)],
    "layout": [_one_of(0, 1)],
}
_LOSS: Row = {"reduction": [_one_of("none", "mean", "sum")]}
_INTO: Sequence[Check] = [_one_of("none", "add", "mul", "max", "min")]
_ON_AXIS: Row = {"axis": [_axis()]}
_TO: Row = {"to": [_element]}
_OVER: Row = {"axes": [_axes]}

_COORDINATES = _one_of(
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
_ROUNDING = _one_of("", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")

_SHARED_ROWS: Mapping[str, Row] = {
    "Conv ConvInteger ConvTranspose DeformConv QLinearConv": _CONVOLUTION,
    "AveragePool MaxPool MaxUnpool": _WINDOWS,
    "DepthToSpace SpaceToDepth": _BLOCKS,
    "GRU LSTM RNN": _RECURRENT,
    "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss": _LOSS,
    "ArgMax ArgMin Compress Concat Gather GatherElements GroupNormalization Hardmax "
    "LayerNormalization LogSoftmax LpNormalization RMSNormalization Softmax TopK Unique": _ON_AXIS,
    "Cast": _TO,
    "CenterCropPad MeanVarianceNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Squeeze": _OVER,
    "Attention com.microsoft.Attention com.microsoft.GroupQueryAttention "
    "com.microsoft.MultiHeadAttention": _HEADS,
}

_TABLE: Mapping[str, Row] = {
    **{name: row for names, row in _SHARED_ROWS.items() for name in names.split()},
    "BitShift": {"direction": [_one_of("LEFT", "RIGHT")]},
    "Einsum": {"equation": [_equation]},
    "EyeLike": {"dtype": [_element]},
    "Flatten": {"axis": [_axis(end=1)]},
    "GatherND": {"batch_dims": [_least(0)]},
    "Gelu": {"approximate": [_one_of("none", "tanh")]},
    "GridSample": {
        "mode": [_one_of("linear", "nearest", "cubic", "bilinear", "bicubic")],
        "padding_mode": [_one_of("zeros", "border", "reflection")],
    },
    "GroupNormalization": {"num_groups": [_least(1)]},
    "LRN": {"size": [_least(1)]},
    "LpPool": {**_WINDOWS, "p": [_least(1)]},
    "OneHot": {"axis": [_axis(more=1)]},
    "Pad": {"mode": [_one_of("constant", "reflect", "edge", "wrap")]},
    "Resize": {
        "axes": [_axes],
        "coordinate_transformation_mode": [_COORDINATES],
        "keep_aspect_ratio_policy": [_one_of("stretch", "not_larger", "not_smaller")],
        "mode": [_one_of("nearest", "linear", "cubic")],
        "nearest_mode": [_ROUNDING],
    },
    "RoiAlign": {
        "mode": [_one_of("avg", "max")],
        "output_height": [_least(1)],
        "output_width": [_least(1)],
    },
    "ScatterElements": {**_ON_AXIS, "reduction": _INTO},
    "ScatterND": {"reduction": _INTO},
    "Split": {**_ON_AXIS, "num_outputs": [_least(1), _results], "split": [_each(0)]},
    "Transpose": {"perm": [_permutation]},
    "Unsqueeze": {"axes": [_new_axes]},
    "Upsample": {"mode": [_one_of("nearest", "linear", "bilinear")]},
}
"""The checks by operator and attribute, in the order in which they run."""

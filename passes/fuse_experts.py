"""`fuse-experts`: run experts with gathered weights as one mixture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.protos.op_names import NamedBuild, OpNamer
from tensoropt.dialects.build import element_type, float_attr, int_attr, onnx_attr, shape_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    attribute,
    constant_value,
    function,
    made_by,
    opsets,
    owner,
    require_domain,
    walk,
)
from tensoropt.passes.base import Pass
from tensoropt.passes.numbering import forget_removed

__all__ = ["FuseExpertsPass"]

_SINCE = 13
"""First opset in which Split, Squeeze, Unsqueeze and ReduceSum take their sizes as operands."""

_DOMAIN = "com.microsoft"
_VIEWS = frozenset(("onnx.Reshape", "onnx.Squeeze", "onnx.Unsqueeze"))


@dataclass(frozen=True)
class FuseExpertsPass(Pass):
    """Replaces experts that multiply gathered weights by one `MoE` of ONNX Runtime.

    PyTorch exports Mixtral, Qwen-MoE and other models of transformers as batched products: each
    token is repeated for its selected experts, the weights of these experts are gathered for each
    repeated token, and the results are added with the weights of a `TopK` over a `Softmax`. The
    gathered weights take far more memory than all experts, and can only be split by features. The
    operator `MoE` selects the same experts, except between equal scores, and its rule splits tokens
    and experts (docs/decisions/0073). Its first layer has gates and values in turn, so the weight
    is reordered, which ONNX Runtime does once, at load, and a training step each time. Experts must
    have gates with `silu` and no biases, in float32, the type that the operator has on CPUs. Others
    are left unchanged. Refuses nothing. Linear in the operations.
    """

    name: ClassVar[str] = "fuse-experts"
    summary: ClassVar[str] = "Replace products of gathered experts by one mixture."

    def run(self, module: ir.Module) -> None:
        opset = opsets(module).get("", 1)
        if opset < _SINCE:
            return
        namer = OpNamer(module)
        with module.context, ir.Location.unknown():
            for op in list(walk(function(module))):
                found = _experts(op) if op.name == "onnx.ReduceSum" else None
                if found is not None:
                    require_domain(module, _DOMAIN)
                    _fuse(op, found, namer, opset)
            forget_removed(module)


@dataclass(frozen=True)
class _Experts:
    """The operands of a mixture: tokens, scores, weights of both layers, selected experts."""

    tokens: ir.Value
    scores: ir.Value
    up: ir.Value
    down: ir.Value
    selected: int
    is_normal: bool


@dataclass(frozen=True)
class _Routes:
    """The scores of experts, and their `TopK`."""

    scores: ir.Value
    top: ir.Operation
    selected: int


def _shape_of(x: ir.Value) -> list[int | None]:
    """Return the shape of a value, empty if its rank is unknown."""
    return shape_of(x) if isinstance(x.type, ir.RankedTensorType) else []


def _experts(op: ir.Operation) -> _Experts | None:
    """Return the experts with results that ``op`` adds for each token, or ``None``."""
    factors = made_by(_viewed(op.operands[0]), "Mul")
    every = _shape_of(op.operands[0])
    if factors is None or len(every) != 3 or _reduced(op) != [1]:
        return None
    for results, weights in _orders(factors):
        layer = _layer(_viewed(results))
        hidden = None if layer is None else _gated(_viewed(layer[1]))
        first = None if hidden is None else _layer(_viewed(hidden))
        if layer is None or first is None:
            continue
        tokens, routes = _repeated(first[1], every), _routes(layer[2])
        if tokens is None or routes is None or _routes(first[2]) != routes:
            continue
        is_normal = _normalises(_viewed(weights), routes)
        if is_normal is None or not _fits(first[0], layer[0], tokens, every, routes):
            continue
        return _Experts(tokens, routes.scores, first[0], layer[0], routes.selected, is_normal)
    return None


def _layer(x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    """Return the weight, the column and the indices of a product of gathered weights."""
    product = made_by(x, "MatMul")
    gather = None if product is None else made_by(product.operands[0], "GatherND")
    if product is None or gather is None:
        return None
    column, indices = product.operands[1], gather.operands[1]
    is_plain = not attribute(gather, "batch_dims", 0) and _shape_of(indices)[1:] == [1]
    is_column = len(_shape_of(column)) == 3 and _shape_of(column)[2] == 1
    return (gather.operands[0], column, indices) if is_plain and is_column else None


def _gated(x: ir.Value) -> ir.Value | None:
    """Return the value with halves that ``x`` is the product of: of silu, and of the other."""
    product = made_by(x, "Mul")
    for gate, value in _orders(product):
        silu = made_by(gate, "Mul")
        for own, sigmoid in _orders(silu):
            made = made_by(sigmoid, "Sigmoid")
            if made is not None and made.operands[0] == own:
                return _halved(own, value)
    return None


def _halved(gate: ir.Value, value: ir.Value) -> ir.Value | None:
    """Return the matrix with ``gate`` as its first half of columns and ``value`` as the second."""
    split = made_by(gate, "Split")
    if split is None or owner(value) != split or len(split.results) != 2:
        return None
    is_last = attribute(split, "axis", 0) in (1, -1) and len(_shape_of(gate)) == 2
    in_order = [gate, value] == [*split.results] and _shape_of(gate) == _shape_of(value)
    return split.operands[0] if is_last and in_order else None


def _repeated(column: ir.Value, every: list[int | None]) -> ir.Value | None:
    """Return the tokens that are repeated, each for its selected experts, or ``None``."""
    repeat = made_by(_viewed(column), "Expand")
    if repeat is None or _shape_of(repeat.results[0]) != every:
        return None
    tokens, _, width = every
    single = repeat.operands[0]
    source = owner(single)
    if _shape_of(single) != [tokens, 1, width] or source is None or source.name not in _VIEWS:
        return None
    x = source.operands[0]
    return x if _shape_of(x) == [tokens, width] else None


def _routes(indices: ir.Value) -> _Routes | None:
    """Return the routes with the selected experts ``indices``, or ``None``."""
    value = _viewed(indices)
    top = made_by(value, "TopK")
    soft = None if top is None else made_by(top.operands[0], "Softmax")
    if top is None or soft is None or value != top.results[1]:
        return None
    selected = constant_value(top.operands[1])
    rank = len(_shape_of(soft.results[0]))
    is_last = all(attribute(op, "axis", -1) in (-1, rank - 1) for op in (top, soft))
    if selected is None or not is_last or rank != 2 or not attribute(top, "largest", 1):
        return None
    return _Routes(soft.operands[0], top, int(selected.item()))


def _normalises(weights: ir.Value, routes: _Routes) -> bool | None:
    """Return whether weights are divided by their sum; ``None`` if they are no selected scores."""
    chosen = routes.top.results[0]
    if weights == chosen:
        return False
    division = made_by(weights, "Div")
    total = None if division is None else made_by(division.operands[1], "ReduceSum")
    if division is None or total is None or division.operands[0] != chosen:
        return None
    sums = total.operands[0] == chosen and _reduced(total) == [1]
    return True if sums and attribute(total, "keepdims", 1) else None


def _fits(
    up: ir.Value, down: ir.Value, tokens: ir.Value, every: list[int | None], routes: _Routes
) -> bool:
    """Return whether the operator takes these shapes and types."""
    (rows, width), wide, narrow = _shape_of(tokens), _shape_of(up), _shape_of(down)
    scores = _shape_of(routes.scores)
    if len(wide) != 3 or len(narrow) != 3 or None in (*wide, *narrow, width):
        return False
    experts, double, _ = wide
    is_float = all(isinstance(element_type(own), ir.F32Type) for own in (tokens, up, down))
    shapes_fit = wide[2] == width and narrow == [experts, width, (double or 0) // 2]
    return is_float and shapes_fit and scores == [rows, experts] and every[1] == routes.selected


def _fuse(op: ir.Operation, found: _Experts, namer: OpNamer, opset: int) -> None:
    """Replace ``op`` by a mixture; `dce` removes the rest."""
    make = NamedBuild(namer, op, opset)
    experts, double, width = (size or 0 for size in _shape_of(found.up))
    with ir.InsertionPoint(op):
        halves = make.reshape(found.up, [experts, 2, double // 2, width])
        up = make.reshape(make.transpose(halves, [0, 2, 1, 3]), [experts, double, width])
        none = make.no_value()
        operands = [found.tokens, found.scores, up, none, found.down, none]
        made = ir.Operation.create(
            f"onnx.{_DOMAIN}.MoE",
            [op.results[0].type],
            operands,
            {
                "k": int_attr(found.selected),
                "normalize_routing_weights": int_attr(int(found.is_normal)),
                "activation_type": onnx_attr("swiglu"),
                "activation_alpha": float_attr(1.0),
                "activation_beta": float_attr(0.0),
                "swiglu_fusion": int_attr(1),
            },
            loc=op.location,
        )
    op.results[0].replace_all_uses_with(made.result)
    op.erase()


def _viewed(x: ir.Value) -> ir.Value:
    """Return the value that ``x`` is a view on, with another shape."""
    op = owner(x)
    while op is not None and op.name in _VIEWS:
        x = op.operands[0]
        op = owner(x)
    return x


def _orders(op: ir.Operation | None) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Yield the two operands in both orders; nothing without an operation."""
    if op is not None:
        a, b = op.operands
        yield a, b
        yield b, a


def _reduced(op: ir.Operation) -> list[int]:
    """Return the dimensions that a reduction removes, an empty list if they are unknown."""
    dims = constant_value(op.operands[1]) if len(op.operands) > 1 else None
    rank = len(_shape_of(op.operands[0]))
    return [] if dims is None else [int(dim) % rank for dim in dims]

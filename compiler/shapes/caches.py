"""Caches of keys and values: which output of a decoder is which of its inputs in the next step.

Exporters name them alike but for the word that says which side they are on: `past_key_values.0.key`
and `present.0.key`, `past_0_key` and `present_0_key`, `past_0` and `present_0`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["Cache", "End", "find_caches", "in_place_names", "open_heads", "pair", "past_names"]

_PAST = re.compile(r"past(_key_values?|(?![a-z]))")
_PRESENT = re.compile(r"present(_key_values?|(?![a-z]))")
_RANKS = (4, 5)  # b h s d; the runtime's own Attention has keys and values in one: 2 b h s d
_IN_PLACE = {"onnx.com.microsoft.GroupQueryAttention": {1: 3, 2: 4}}
"""Operators that write a result where an operand was, by their numbers."""


@dataclass(frozen=True)
class End:
    """An input or output: its shape has ``None`` for a symbolic dimension."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Cache:
    """An input and the output that takes its place in the next step."""

    past: str
    present: str


def pair(
    inputs: Sequence[End], outputs: Sequence[End]
) -> tuple[list[Cache], list[tuple[str, str]]]:
    """Return the caches, in the order of the inputs, and why other inputs so called are none."""
    there = {found: end for end in outputs if (found := _rest(_PRESENT, end.name)) is not None}
    caches, refused = [], []
    for past in inputs:
        rest = _rest(_PAST, past.name)
        if rest is None:
            continue
        present = there.pop(rest, None)
        reason = _unpaired(past) if present is None else _misfit(past, present)
        if present is None or reason is not None:
            refused.append((past.name, reason or ""))
        else:
            caches.append(Cache(past.name, present.name))
    return caches, refused


def _rest(word: re.Pattern[str], name: str) -> str | None:
    """Return what is left of ``name`` without ``word``, however its parts are joined."""
    found = word.search(name)
    if found is None:
        return None
    left = f"{name[: found.start()]}.{name[found.end() :]}"
    return ".".join(filter(None, re.split(r"[._/:-]", left)))


def _unpaired(past: End) -> str:
    wanted = _PAST.sub("present", past.name, count=1)
    return f"no output is called like it, expected one such as '{wanted}'"


def _misfit(past: End, present: End) -> str | None:
    """Return why one cannot take the place of the other: all but one dimension are the same."""
    if past.shape is None or present.shape is None or len(past.shape) not in _RANKS:
        rank = "an unknown number" if past.shape is None else len(past.shape)
        return f"expected four or five dimensions: batch, heads, tokens, head; got: {rank}"
    name, ranks = f"'{present.name}'", (len(past.shape), len(present.shape))
    if past.dtype != present.dtype:
        return f"{name} is of another type, expected {past.dtype}, got: {present.dtype}"
    if ranks[0] != ranks[1]:
        return f"{name} has another number of dimensions, expected {ranks[0]}, got: {ranks[1]}"
    odd = [dim for dim, (a, b) in enumerate(zip(past.shape, present.shape, strict=True)) if a != b]
    if len(odd) > 1:
        listed = ", ".join(map(str, odd))
        return f"{name} differs in dimensions {listed}, expected one at most, in which it grows"
    return None


def open_heads(module: ir.Module) -> list[str]:
    """Return the names of sizes that caches leave open in their last dimension, how long a head is.

    Text is generated only where that is known.
    """
    pasts = {cache.past for cache in find_caches(module)[0]}
    given = (own for _, own in onnx.arguments(onnx.function(module)))
    names = [keys.DIMS.get(own, []) for own in given if keys.NAME.get(own) in pasts]
    return list(dict.fromkeys(dims[-1] for dims in names if dims and dims[-1]))


def find_caches(module: ir.Module) -> tuple[list[Cache], list[tuple[str, str]]]:
    """Return the caches of ``module``, and why other inputs called so are none; see `pair`."""
    main = onnx.function(module)
    given = [_end(value.type, own) for value, own in onnx.arguments(main) if not keys.PARAM.on(own)]
    made = [_end(value.type, own) for value, own in _returned(main)]
    return pair(given, made)


def _end(kind: ir.Type, attributes: ir.DictAttr) -> End:
    name = keys.NAME.get(attributes) or ""  # none in text that somebody wrote
    if not isinstance(kind, ir.RankedTensorType):
        return End(name, str(kind), None)
    shape = (None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank))
    return End(name, str(kind.element_type), tuple(shape))


def _returned(main: ir.Operation) -> Iterator[tuple[ir.Value, ir.DictAttr]]:
    operations = main.regions[0].blocks[0].operations
    values = operations[len(operations) - 1].operation.operands
    yield from zip(values, onnx.held_by(main, "res_attrs", len(values)), strict=True)


def past_names(main: ir.Operation) -> Mapping[str, ir.Value]:
    """Return the results of a function that are caches, by the name of the argument that each
    takes the place of."""
    marked = ((keys.CACHE.get(own), value) for value, own in _returned(main))
    return {name: value for name, value in marked if name is not None}


def in_place_names(main: ir.Operation) -> frozenset[str]:
    """Return the arguments of a function that are caches and may be given with room for more
    tokens: the operator that makes the next cache writes it where the one before is.

    The result is empty if another operation reads such an argument. Its size would be that of the
    room, and the model may count the tokens by it.
    """
    found = {
        name: argument
        for name, value in past_names(main).items()
        if (argument := _overwritten(value)) is not None
    }
    is_shared = any(len([*argument.uses]) > 1 for argument in found.values())
    return frozenset() if is_shared else frozenset(found)


def _overwritten(result: ir.Value) -> ir.Value | None:
    """Return the argument that an operator can overwrite with ``result``."""
    op = onnx.owner(result)
    operands = {} if op is None else _IN_PLACE.get(op.name, {})
    number = operands.get(ir.OpResult(result).result_number) if operands else None
    if op is None or number is None or onnx.owner(op.operands[number]) is not None:
        return None
    return op.operands[number]

"""Caches of keys and values: pairs of a decoder's inputs and the outputs that replace them.

Exporters give both the same name, except for the word that marks the side: `past_key_values.0.key`
and `present.0.key`, `past_0_key` and `present_0_key`, `past_0` and `present_0`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensoropt.compiler.sharding.rule.in_place import TAKES_ROOM, overwritable
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = [
    "Cache",
    "End",
    "find_caches",
    "in_place_pairs",
    "open_heads",
    "open_tokens",
    "pair",
    "past_names",
    "too_small",
]

_PAST = re.compile(r"past(_key_values?|(?![a-z]))")
_PRESENT = re.compile(r"present(_key_values?|(?![a-z]))")
_RANKS = (4, 5)  # b h s d; 2 b h s d if the runtime's Attention stores keys and values together


@dataclass(frozen=True)
class End:
    """An input or output: its shape has ``None`` for a symbolic dimension."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Cache:
    """An input and the output that replaces it in the next step."""

    past: str
    present: str


def pair(
    inputs: Sequence[End], outputs: Sequence[End]
) -> tuple[list[Cache], list[tuple[str, str]]]:
    """Return the caches in input order, and why other inputs with such names are not caches."""
    present_of = {rest: end for end in outputs if (rest := _rest(_PRESENT, end.name)) is not None}
    caches, refused = [], []
    for past in inputs:
        rest = _rest(_PAST, past.name)
        if rest is None:
            continue
        present = present_of.pop(rest, None)
        if present is None:
            wanted = _PAST.sub("present", past.name, count=1)
            reason = f"no output is called like it, expected one such as '{wanted}'"
            refused.append((past.name, reason))
        elif (misfit := _misfit(past, present)) is not None:
            refused.append((past.name, misfit))
        else:
            caches.append(Cache(past.name, present.name))
    return caches, refused


def _rest(word: re.Pattern[str], name: str) -> str | None:
    """Return the rest of ``name`` without ``word``, independent of its separators."""
    found = word.search(name)
    if found is None:
        return None
    left = f"{name[: found.start()]}.{name[found.end() :]}"
    return ".".join(filter(None, re.split(r"[._/:-]", left)))


def _misfit(past: End, present: End) -> str | None:
    """Return why ``present`` cannot replace ``past``: all dimensions except one must be equal."""
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
    """Return the names of open sizes in the last dimension of caches, the length of a head.

    Text is generated only if that length is known.
    """
    pasts = {cache.past for cache in find_caches(module)[0]}
    given = (own for _, own in onnx.arguments(onnx.function(module)))
    names = [keys.DIMS.get(own, []) for own in given if keys.NAME.get(own) in pasts]
    return list(dict.fromkeys(dims[-1] for dims in names if dims and dims[-1]))


def open_tokens(module: ir.Module) -> tuple[list[str], list[str]]:
    """Return the names of open numbers of tokens in caches, and those in other inputs of a decoder.

    All sizes of inputs but the first ones and heads are such numbers. A text has any number of
    tokens, so they may have a range, but no single size. Empty without caches.
    """
    pasts = {cache.past for cache in find_caches(module)[0]}
    arguments = onnx.arguments(onnx.function(module)) if pasts else []
    given = [(keys.NAME.get(own), keys.DIMS.get(own, [])) for _, own in arguments]
    others = {*open_heads(module), *(dims[0] for _, dims in given if dims), "", None}
    found = [(name in pasts, d) for name, dims in given for d in dims if d not in others]
    kept = dict.fromkeys(dim for is_past, dim in found if is_past)
    read = dict.fromkeys(dim for is_past, dim in found if not is_past and dim not in kept)
    return [*kept], [*read]


def find_caches(module: ir.Module) -> tuple[list[Cache], list[tuple[str, str]]]:
    """Return the caches of ``module``, and why other inputs with such names are not; see `pair`."""
    main = onnx.function(module)
    given = [_end(value.type, own) for value, own in onnx.arguments(main) if not keys.PARAM.on(own)]
    made = [_end(value.type, own) for value, own in _returned(main)]
    return pair(given, made)


def _end(kind: ir.Type, attributes: ir.DictAttr) -> End:
    name = keys.NAME.get(attributes) or ""  # may be missing in hand-written text
    if not isinstance(kind, ir.RankedTensorType):
        return End(name, str(kind), None)
    shape = (None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank))
    return End(name, str(kind.element_type), tuple(shape))


def _returned(main: ir.Operation) -> Iterator[tuple[ir.Value, ir.DictAttr]]:
    operations = main.regions[0].blocks[0].operations
    values = operations[len(operations) - 1].operation.operands
    yield from zip(values, onnx.signature_attributes(main, "res_attrs", len(values)), strict=True)


def past_names(main: ir.Operation) -> Mapping[str, ir.Value]:
    """Return the results of a function that are caches, by the argument that each replaces."""
    marked = ((keys.CACHE.get(own), value) for value, own in _returned(main))
    return {name: value for name, value in marked if name is not None}


def in_place_pairs(module: ir.Module, pasts: Mapping[str, str]) -> dict[str, str]:
    """Return the pairs of ``pasts``, by the name of the result, that are updated in place.

    The operator that returns the result can write it into the memory of the argument, which must
    have room: both have the same fixed size, or the operator accepts a cache with room for more
    tokens and their number is open. Empty if another operation reads such an argument: it would see
    the size of the room, and the model may derive the number of tokens from it.
    """
    main = onnx.function(module)
    names = {value: keys.NAME.get(own) for value, own in onnx.arguments(main)}
    found, read = {}, []
    for value, own in _returned(main):
        name, past, op = keys.NAME.get(own, ""), _source(value), onnx.owner(value)
        if past is None or op is None or not _has_room(op, past.type, value.type):
            continue
        if name in pasts and names.get(past) == pasts[name]:
            found[name] = pasts[name]
            read.append(past)
    is_shared = any(len([*argument.uses]) > 1 for argument in read)
    return {} if is_shared else found


def too_small(module: ir.Module) -> list[tuple[Cache, int, int]]:
    """Return the caches that a larger input would let the operator update in place.

    Each comes with the sizes of its input and of its output, in tokens. An empty cache, of the
    first step, is none of them.
    """
    main, found = onnx.function(module), []
    names = {value: keys.NAME.get(own, "") for value, own in onnx.arguments(main)}
    pairs = {(cache.past, cache.present): cache for cache in find_caches(module)[0]}
    for value, own in _returned(main):
        past = _source(value)
        cache = None if past is None else pairs.get((names.get(past, ""), keys.NAME.get(own, "")))
        op = onnx.owner(value)
        if past is None or cache is None or op is None or op.name not in TAKES_ROOM:
            continue
        old, new = ir.RankedTensorType(past.type), ir.RankedTensorType(value.type)
        if old.has_static_shape and new.has_static_shape:
            sizes = zip(old.shape, new.shape, strict=True)
            found += [(cache, a, b) for a, b in sizes if a and a != b]
    return found


def _source(result: ir.Value) -> ir.Value | None:
    """Return the argument with memory that the operator can reuse for ``result``, given room."""
    op = onnx.owner(result)
    number = None if op is None else overwritable(op).get(ir.OpResult(result).result_number)
    if op is None or number is None or onnx.owner(op.operands[number]) is not None:
        return None
    return op.operands[number]


def _has_room(op: ir.Operation, past: ir.Type, present: ir.Type) -> bool:
    """Return whether the memory of a cache can have the size of the next cache."""
    old, new = ir.RankedTensorType(past), ir.RankedTensorType(present)
    pairs = [
        (old.get_dim_size(dim), new.get_dim_size(dim))
        for dim in range(old.rank)
        if not (old.is_dynamic_dim(dim) and new.is_dynamic_dim(dim))
    ]
    is_open = len(pairs) < old.rank
    return all(a == b for a, b in pairs) and (not is_open or op.name in TAKES_ROOM)

"""`tensoropt.Attention` and its gradient on a rank with parts of the rows and of the keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.attending import Part
from tensoropt.compiler.sharding.rule.kernel_attending import (
    Hidden,
    KernelAttending,
    combine_over_ranks,
)
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.ring import Ring
from tensoropt.dialects.build import sizes_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import ATTENTION_OPTIONS

__all__ = [
    "BACKWARD",
    "BATCH",
    "FORWARD",
    "HEADS",
    "KEYS",
    "QUERIES",
    "ROWS",
    "Places",
    "has_halves",
    "localize",
]

BATCH, HEADS, ROWS, QUERIES, KEYS = range(5)
"""The factors; ``QUERIES`` is over the query heads that share a head of keys. The first three have
the numbers of the dimensions of a query."""

_TOKENS, _LAST = 2, 3
"""Dimensions: of rows or keys, and of the elements of a head or the keys of a bias."""


@dataclass(frozen=True)
class Places:
    """Places of operands and results: with the rows of queries, of keys, and of the bias."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    bias: int
    results: tuple[int, ...]
    key_gradients: tuple[int, ...] = ()
    bias_gradient: tuple[int, ...] = ()

    @property
    def query(self) -> int:
        return self.keys[0] - 1

    @property
    def lengths(self) -> int:
        return self.bias + 1

    @property
    def offset(self) -> int:
        return self.bias + 2

    @property
    def row_seeds(self) -> int:
        return self.bias + 3

    @property
    def key_seeds(self) -> int:
        return self.bias + 4


FORWARD = Places((0,), (1, 2), 3, (0, 1))
BACKWARD = Places((0, 1, 4, 5), (2, 3), 6, (0,), (1, 2), (3,))


def has_halves(info: OpInfo, places: Places) -> bool:
    """Return whether each row sees all keys up to its own place, of an even number of keys, and
    keeps their weights.

    The parts of a ring are then exchanged in halves, so that all ranks have equal work.
    """
    rows, keys = (info.shape(index)[_TOKENS] for index in (places.query, places.keys[0]))
    hides = any(info.operand(places.bias + index) is not None for index in range(5))
    square = rows == keys and not (keys or 1) % 2
    return bool(info.attribute("causal", 0)) and square and not hides and not _window(info)


def localize(local: LocalOp) -> list[ir.Value]:
    """Return the op of a rank, a ring, or the rank's term of the attention to all keys."""
    make, places = Arithmetic(local), _places(local)
    if local.strategy.joint_axes:
        return _go_round(make, places)
    hidden = _hidden(make, places)
    first = _first(local, KEYS, sizes_of(local.operands[places.keys[0]])[_TOKENS])
    if first is not None:
        hidden = hidden.start_at(make, first)
    operands = [*local.operands[: places.bias], *hidden.operands(make)]
    results = replace(local, operands=operands).clone()
    if places is BACKWARD or first is None:
        return results
    y, lse = results
    part = Part(make.wide(y), make.unsqueeze(lse, [_LAST]))
    return _as_results(make, combine_over_ranks(make, part, local.axes(KEYS)))


def _places(local: LocalOp) -> Places:
    return FORWARD if local.info.name == "tensoropt.Attention" else BACKWARD


def _window(info: OpInfo) -> int:
    return int(info.attribute("window", 0))


def _first(local: LocalOp, factor: int, part: int) -> ir.Value | None:
    """Return the place of the first point of the rank's ``part`` of a factor, int64 [1].

    ``None`` if the factor is whole.
    """
    import numpy as np

    axes = local.axes(factor)
    if not axes:
        return None
    starts = np.arange(local.pieces(factor), dtype=np.int64).reshape(-1, 1) * part
    return local.axis_constant(starts, axes)


def _hidden(make: Arithmetic, places: Places) -> Hidden:
    """Return the operands that hide keys, with the place of the rank's first row."""
    local = make.local
    info, given = local.info, range(places.bias, places.key_seeds + 1)
    hidden = Hidden(*(local.operands[n] if info.operand(n) is not None else None for n in given))
    if not (info.attribute("causal", 0) or _window(info)):
        return hidden._replace(offset=None)
    offset = hidden.offset
    first = _first(local, ROWS, local.part(ROWS))
    if first is None and offset is None and local.axes(KEYS):
        first = make.ints([0])
    if first is not None:
        offset = first if offset is None else make.add(offset, first)
    return hidden._replace(offset=offset)


def _go_round(make: Arithmetic, places: Places) -> list[ir.Value]:
    """Return attention, or its gradients, with keys and values that travel in a ring."""
    local, axes = make.local, make.local.strategy.joint_axes
    options = local.op.attributes
    attributes = {name: options[name] for name in ATTENTION_OPTIONS if name in options}
    ring = Ring(make, KernelAttending(make, attributes), axes)
    q, k, v = local.operands[places.query : places.query + 3]
    halves, hidden = has_halves(local.info, places), _all_keys(make, _hidden(make, places), axes)
    mask = hidden if any(value is not None for value in hidden) else None
    if places is FORWARD:
        return _as_results(make, ring.causal(q, k, v) if halves else ring.all(q, k, v, mask))
    dy, *_, y, lse = local.operands[: places.bias]
    rows = [make.unsqueeze(lse, [_LAST]), y, dy]
    if halves:
        found = ring.causal_gradients(q, k, v, rows)
    else:
        found = ring.all_gradients(q, k, v, rows, mask)
    return [make.as_result(x, index) for index, x in enumerate(found)]


def _all_keys(make: Arithmetic, hidden: Hidden, axes: tuple[int, ...]) -> Hidden:
    """Return ``hidden`` with a bias and seeds for all keys.

    A bias without rows and the seeds are split along the keys.
    """
    local, places = make.local, _places(make.local)
    whole = {
        name: local.all_gather(value, axes, _LAST)
        for name, value in hidden._asdict().items()
        if name in ("bias", "key_seeds")
        and value is not None
        and ROWS not in local.rule.operands[getattr(places, name)]
    }
    return hidden._replace(**whole)


def _as_results(make: Arithmetic, part: Part) -> list[ir.Value]:
    return [make.as_result(part.y), make.squeeze(part.total, [_LAST])]

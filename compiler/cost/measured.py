"""What was measured of single operators and collectives: parts of a device description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensoropt.compiler.cost.fields import Table
from tensoropt.compiler.layout.collective import Collective
from tensoropt.compiler.support.errors import UserError, did_you_mean

__all__ = [
    "KINDS",
    "Collectives",
    "Context",
    "Lines",
    "Operator",
    "Operators",
    "Waiting",
    "check_types",
    "context_of",
    "read_collectives",
    "read_operators",
    "read_waiting",
]

Context = tuple[str, ...]
"""The operators that make the operands of an op, empty for an input or a constant."""


_ALIKE = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})  # any number of operands, all alike


def context_of(name: str, makers: Iterable[str]) -> Context:
    """Return the context of an op whose operands come from ``makers``, without empty ones at the
    end, which may be operands that are left out.

    Where all operands are alike each maker is named once: four do as two do.
    """
    names = list(dict.fromkeys(makers)) if name in _ALIKE else list(makers)
    while names and not names[-1]:
        names.pop()
    return tuple(names)


KINDS: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@dataclass(frozen=True)
class Operator:
    """An operator in one type: ``launch_s + s_per_flop * flops + s_per_byte * bytes``, and
    ``s_per_far_byte`` for each of the bytes that are more than ``cache_bytes``.

    In the contexts ``fused`` ONNX Runtime makes it part of what comes before or after it.
    """

    launch_s: float
    s_per_flop: float = 0.0
    s_per_byte: float = 0.0
    fused: frozenset[Context] = frozenset()
    cache_bytes: float = 0.0
    s_per_far_byte: float = 0.0

    def time_s(self, flops: float, moved_bytes: float) -> float:
        """Return the time on one rank."""
        near_s = self.launch_s + self.s_per_flop * flops + self.s_per_byte * moved_bytes
        return near_s + self.s_per_far_byte * max(moved_bytes - self.cache_bytes, 0.0)


@dataclass(frozen=True)
class Waiting:
    """How much longer steps of several ranks take than the ranks' own times, as each waits for the
    slowest: seconds per collective, part of the time in operators, and seconds per collective and
    root of the bytes of its tensor, as the ranks have it together."""

    collective_s: float = 0.0
    operators: float = 0.0
    s_per_root_byte: float = 0.0


def read_waiting(table: Table) -> dict[int, Waiting]:
    """Return the tables ``[waiting.RANKS]``."""
    found = {}
    for name in table.names():
        if not name.isdecimal() or int(name) < 2:
            raise UserError(f"{table.where(name)}: expected a number of ranks from 2 on")
        own = table.table(name)
        names = ("collective_s", "operators", "s_per_root_byte")
        found[int(name)] = Waiting(*map(own.amount, names))
        own.reject_unread()
    return found


Operators = Mapping[tuple[str, str], Operator]
"""By ONNX name, with its domain in front unless standard, and NumPy type."""

Lines = tuple[tuple[float, float], ...]
"""(seconds, seconds per byte that a rank puts in) of each line; the greatest counts."""

Collectives = Mapping[tuple[str, int], Lines]
"""By kind and number of ranks."""


def read_operators(table: Table) -> dict[tuple[str, str], Operator]:
    """Return the tables ``[operator.NAME.TYPE]``."""
    found = {}
    for name in table.names():
        _check_operator(table, name)
        types = table.table(name)
        check_types(types)
        for dtype in types.names():
            found[name, dtype] = _operator(types.table(dtype))
    return found


def check_types(table: Table) -> None:
    """Raise :class:`UserError` for a key that is no NumPy type of an ONNX element."""
    from tensoropt.dialects.elements import ELEMENTS

    known = [element.numpy for element in ELEMENTS]
    for key in table.names():
        if key not in known:
            raise UserError(f"{table.where(key)}: unknown element type{did_you_mean(key, known)}")


def _check_operator(table: Table, name: str) -> None:
    """Raise :class:`UserError` for a standard operator that there is not, a typing error."""
    import onnx

    base = name.partition(":")[0]  # what follows tells a variant apart
    if "." not in base and not onnx.defs.has(base):
        known = {schema.name for schema in onnx.defs.get_all_schemas()}
        raise UserError(
            f"{table.where(name)}: unknown operator, expected one of ONNX's or DOMAIN.NAME"
            f"{did_you_mean(base, known)}"
        )


def _operator(table: Table) -> Operator:
    operator = Operator(
        table.amount("launch_s"),
        _inverse(table, "flop_per_s"),
        _inverse(table, "bytes_per_s"),
        frozenset(table.texts("fused")),
        table.amount("cache_bytes"),
        _inverse(table, "far_bytes_per_s"),
    )
    table.reject_unread()
    return operator


def _inverse(table: Table, key: str) -> float:
    """Return the time of one, of a rate; a rate that is not there takes no time."""
    rate = table.amount(key)
    return 1.0 / rate if rate else 0.0


def read_collectives(table: Table) -> dict[tuple[str, int], Lines]:
    """Return the tables ``[collective.KIND]``, whose keys are numbers of ranks."""
    found: dict[tuple[str, int], Lines] = {}
    for kind in table.names():
        if kind not in KINDS:
            raise UserError(
                f"{table.where(kind)}: unknown collective, expected one of {', '.join(KINDS)}"
                f"{did_you_mean(kind, KINDS)}"
            )
        groups = table.table(kind)
        for ranks in groups.names():
            if not ranks.isdecimal() or int(ranks) < 2:
                raise UserError(f"{groups.where(ranks)}: expected a number of ranks from 2 on")
            found[kind, int(ranks)] = groups.lines(ranks)
    return found

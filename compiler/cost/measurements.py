"""Measurements of single operators and collectives, as parts of a device description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensoropt.compiler.cost.fields import Table
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.runtime.support.collectives import COLLECTIVES

__all__ = [
    "KINDS",
    "Collectives",
    "Context",
    "Lines",
    "MeasuredCurve",
    "Operator",
    "Operators",
    "Waiting",
    "check_type",
    "check_types",
    "context_of",
    "read_collectives",
    "read_operators",
    "read_waiting",
]

Context = tuple[str, ...]
"""Operators that produce the operands of an op; empty for an input or a constant."""


_VARIADIC = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})  # all operands are interchangeable


def context_of(name: str, makers: Iterable[str]) -> Context:
    """Return the context of an op with operands from ``makers``.

    Trailing empty names are dropped, because these operands may be omitted. If all operands are
    interchangeable, each maker is named once: four have the same effect as two.
    """
    names = list(dict.fromkeys(makers)) if name in _VARIADIC else list(makers)
    while names and not names[-1]:
        names.pop()
    return tuple(names)


KINDS = tuple(kind for kind, own in COLLECTIVES.items() if own.reshards)
"""The collectives that are measured."""


@dataclass(frozen=True)
class Operator:
    """Time of an operator in one type.

    It is ``launch_s + s_per_flop * flops + s_per_byte * bytes``, plus ``s_per_far_byte`` for each
    byte beyond ``cache_bytes``. In the contexts ``fused``, ONNX Runtime fuses it with its
    predecessor or successor.
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
    """Extra time of steps on several ranks, because each waits for the slowest.

    In seconds per collective, as a fraction of the time in operators, and in seconds per collective
    and square root of the bytes of its whole tensor.
    """

    collective_s: float = 0.0
    operators: float = 0.0
    s_per_root_byte: float = 0.0


def read_waiting(table: Table) -> dict[int, Waiting]:
    """Return the tables ``[waiting.RANKS]``."""
    found = {}
    for name in table.names():
        if not name.isdecimal() or int(name) < 2:
            raise UserError(f"{table.where(name)}: expected 2 or more ranks, got: '{name}'")
        own = table.table(name)
        names = ("collective_s", "operators", "s_per_root_byte")
        found[int(name)] = Waiting(*map(own.amount, names))
        own.reject_unread()
    return found


Operators = Mapping[tuple[str, str], Operator]
"""By ONNX name, prefixed with its domain unless standard, and NumPy type."""

Lines = tuple[tuple[float, float], ...]
"""(seconds, seconds per byte of a rank's input) of each line; the maximum applies."""


@dataclass(frozen=True)
class MeasuredCurve:
    """Time of a collective in the bytes of a rank's input: the maximum of lines, and a root.

    The root stands for protocols that reach more of the bandwidth as messages grow.
    """

    lines: Lines
    s_per_root_byte: float = 0.0


Collectives = Mapping[tuple[str, int], MeasuredCurve]
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
    for key in table.names():
        check_type(key, table.where(key))


def check_type(name: str, where: str) -> None:
    """Raise :class:`UserError` if ``name``, read at ``where``, is no NumPy type of an element."""
    from tensoropt.dialects.elements import ELEMENTS

    known = [element.numpy for element in ELEMENTS]
    if name not in known:
        raise UserError(f"{where}: unknown element type{did_you_mean(name, known)}")


def _check_operator(table: Table, name: str) -> None:
    """Raise :class:`UserError` for a standard operator that does not exist, such as a typo."""
    import onnx

    base = name.partition(":")[0]  # a suffix names a variant
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
    """Return the inverse of a rate, 0 if the rate is absent."""
    rate = table.amount(key)
    return 1.0 / rate if rate else 0.0


def read_collectives(table: Table) -> dict[tuple[str, int], MeasuredCurve]:
    """Return the tables ``[collective.KIND.RANKS]``."""
    found: dict[tuple[str, int], MeasuredCurve] = {}
    for kind in table.names():
        if kind not in KINDS:
            raise UserError(
                f"{table.where(kind)}: unknown collective, expected one of {', '.join(KINDS)}"
                f"{did_you_mean(kind, KINDS)}"
            )
        groups = table.table(kind)
        for ranks in groups.names():
            if not ranks.isdecimal() or int(ranks) < 2:
                raise UserError(f"{groups.where(ranks)}: expected 2 or more ranks, got: '{ranks}'")
            own = groups.table(ranks)
            curve = MeasuredCurve(own.lines("lines"), own.amount("s_per_root_byte"))
            found[kind, int(ranks)] = curve
            own.reject_unread()
    return found

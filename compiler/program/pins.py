"""Pins as conditions on the strategies of single nodes.

A condition names mesh axes, so it applies to any mesh. Strategies that violate it are left out of
the tables (``options.py``); every search chooses among the remaining strategies.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from tensoropt.compiler.layout.layouts import describe_misfit
from tensoropt.compiler.layout.mesh import axis_name
from tensoropt.compiler.layout.rule import AxisRole, Strategy
from tensoropt.compiler.layout.rule_text import NamedRule
from tensoropt.compiler.sharding.rule.strategies import axis_roles, has_role
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.layout import REPLICATE, Layout, Placement
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "Condition",
    "Conditions",
    "Done",
    "Partial",
    "PinsError",
    "Split",
    "Tensor",
    "Term",
    "allowed",
    "culprits",
    "least_culprits",
]

_SHOWN = 4
_PATIENCE_S = 20.0
"""Seconds for finding a minimal set of contradicting pins."""

_T = TypeVar("_T")

Done = Placement | AxisRole
"""The effect of an axis: a placement of a tensor, or a role for an op."""


class PinsError(UserError):
    """Pins leave a node without a strategy; ``sources`` are the pins that cause it."""

    def __init__(self, message: str, sources: Sequence[str]) -> None:
        super().__init__(message)
        self.sources = tuple(sources)


class Subject(Protocol):
    """The tensor or op that a condition restricts."""

    def does(self, strategy: Strategy, axis: int, done: Done) -> bool:
        """Return whether ``axis`` has the effect ``done`` on it under ``strategy``."""
        ...

    def offered(self, options: Iterable[Strategy]) -> list[str]:
        """Return its possible effects among ``options``, as text."""
        ...


@dataclass(frozen=True)
class Tensor:
    """An operand or a result of a node; if it ``is_stored``, in its layout between steps.

    ``shape`` is for messages only: nodes of other shapes have other tables anyway.
    """

    side: Literal["operand", "result"]
    number: int
    is_stored: bool = False
    shape: tuple[int | None, ...] | None = field(default=None, compare=False, repr=False)

    def misfit(self, done: Done, axis: int | None, mesh: Mesh) -> str | None:
        """Return why one axis, or all axes for ``None``, cannot have the effect ``done``."""
        if not isinstance(done, Placement) or not done.is_split or self.shape is None:
            return None
        axes = mesh.axes if axis is None else (axis,)
        return describe_misfit(Layout.replicated(mesh).replace(axes, done), self.shape, mesh)

    def does(self, strategy: Strategy, axis: int, done: Done) -> bool:
        own = self._placement(strategy, axis)
        return done in (own, own.plain)

    def offered(self, options: Iterable[Strategy]) -> list[str]:
        """Return the distinct layouts."""
        rows = ([self._placement(o, a) for a in range(len(self._placements(o)))] for o in options)
        return list(dict.fromkeys("[" + ", ".join(map(str, row)) + "]" for row in rows))

    def _placements(self, strategy: Strategy) -> tuple[Placement, ...]:
        side = strategy.operands if self.side == "operand" else strategy.results
        return side[self.number].placements

    def _placement(self, strategy: Strategy, axis: int) -> Placement:
        own = self._placements(strategy)[axis]
        return REPLICATE if self.is_stored and own.is_partial else own


@dataclass(frozen=True)
class Partial:
    """Reads of partial sums by a node: of its computed ``operands``, or of weights.

    A weight that is added to a sum over ranks (a bias) does not count: other operands are then
    split.
    """

    operands: tuple[int, ...]

    def does(self, strategy: Strategy, axis: int, done: Done) -> bool:
        read = [layout.placements[axis] for layout in strategy.operands]
        whole = not any(placement.is_split for placement in read)
        return any(
            placement.is_partial and (whole or number in self.operands)
            for number, placement in enumerate(read)
        )

    def offered(self, options: Iterable[Strategy]) -> list[str]:
        """Return the alternative to partial sums."""
        return ["no partial sums"]


@dataclass(frozen=True)
class Split:
    """The role of an axis for an op.

    Roles are compared by layouts, as several factors may give the same layouts. Nodes of other
    rules have other tables anyway, so ``rule`` is not compared.
    """

    rule: NamedRule = field(compare=False, repr=False)

    def does(self, strategy: Strategy, axis: int, done: Done) -> bool:
        assert not isinstance(done, Placement)
        return has_role(self.rule.rule, strategy, axis, done)

    def offered(self, options: Iterable[Strategy]) -> list[str]:
        """Return the factors that are split."""
        kept, found = list(options), []
        for role in axis_roles(self.rule.rule):
            axes = range(len(kept[0].results[0].placements)) if kept else ()
            if isinstance(role, int) and any(self.does(o, a, role) for o in kept for a in axes):
                found.append(self.rule.role_text(role))
        return ["replicate", *found]


@dataclass(frozen=True)
class Term:
    """A requirement: ``axis``, or every axis for ``None``, has the effect ``done``."""

    subject: Subject
    done: Done
    axis: int | None = None

    @property
    def is_whole(self) -> bool:
        """True if it requires that nothing is split."""
        return self.done is None or (isinstance(self.done, Placement) and self.done.is_replicate)

    def holds(self, strategy: Strategy, mesh: Mesh, *, anywhere: bool) -> bool:
        """Return whether a strategy meets it; without an axis, on any axis if ``anywhere``."""
        if self.axis is not None:
            lacks = self.axis >= len(mesh.shape)
            return self.is_whole if lacks else self.subject.does(strategy, self.axis, self.done)
        some = any if anywhere and not self.is_whole else all
        return some(self.subject.does(strategy, axis, self.done) for axis in mesh.axes)


@dataclass(frozen=True)
class Condition:
    """All of ``terms`` together, required or (``forbids``) excluded.

    ``source`` is the text of a pin; conditions with equal requirements are equal. With ``axes``, it
    applies only to meshes with this number of axes.
    """

    source: str = field(compare=False)
    terms: tuple[Term, ...]
    forbids: bool = False
    axes: int | None = None

    def allows(self, strategy: Strategy, mesh: Mesh) -> bool:
        """Return whether a node may have ``strategy`` on ``mesh``; on one rank nothing is split."""
        if mesh.size == 1:
            return True
        if self.axes not in (None, len(mesh.shape)):
            return self.forbids
        hold = all(term.holds(strategy, mesh, anywhere=self.forbids) for term in self.terms)
        return hold != self.forbids

    @property
    def names_axes(self) -> bool:
        """True if it distinguishes the axes of a mesh."""
        return self.axes is not None or any(term.axis is not None for term in self.terms)

    def refusal(self, name: str, options: Sequence[Strategy], mesh: Mesh) -> str:
        """Return why no strategy of a node meets this condition alone."""
        if self.axes not in (None, len(mesh.shape)):
            return f"{self.source}: expected a mesh of {self.axes} axes, got: {mesh}"
        for term in self.terms:
            if term.axis is not None and term.axis >= len(mesh.shape) and not term.is_whole:
                axis = axis_name(term.axis)
                return f"{self.source}: expected a mesh with an axis {axis}, got: {mesh}"
            if isinstance(term.subject, Tensor):
                misfit = term.subject.misfit(term.done, term.axis, mesh)
                if misfit is not None:
                    return f"{self.source}: {misfit}"
        return f"{self.source}: no strategy of '{name}' is like that, {self._offered(options)}"

    def _offered(self, options: Sequence[Strategy]) -> str:
        """Return the texts that a person may write instead, the nearest first."""
        offered = list(
            dict.fromkeys(t for term in self.terms for t in term.subject.offered(options))
        )
        said = self.source.rpartition("=")[2]
        near = difflib.get_close_matches(said, offered, n=_SHOWN, cutoff=0.0)
        more = f" and {len(offered) - len(near)} more" if len(offered) > len(near) else ""
        return f"expected {' or '.join(near)}{more}"


Conditions = Mapping[int, tuple[Condition, ...]]
"""The conditions on each node of the graph."""

Case = tuple[str, Condition, Sequence[Strategy]]
"""The name of a node, a condition on it, and the strategies to choose from."""


def allowed(cases: Sequence[Case], count: int, mesh: Mesh) -> list[int]:
    """Return which of ``count`` options meet every condition.

    Raises :class:`PinsError` if none does, with the fewest conditions that cause it.
    """
    flags = [[c.allows(option, mesh) for option in options] for _, c, options in cases]
    left = [n for n in range(count) if all(row[n] for row in flags)]
    if left:
        return left
    found = culprits(list(zip(cases, flags, strict=True)), lambda rows: _is_empty(rows, count))
    name, condition, options = found[0][0]
    sources = list(dict.fromkeys(case[1].source for case, _ in found))
    if len(sources) == 1:
        raise PinsError(condition.refusal(name, options, mesh), sources)
    raise PinsError(f"{_join_sources(sources)} contradict each other at '{name}'", sources)


def _is_empty(rows: Sequence[tuple[Case, Sequence[bool]]], count: int) -> bool:
    return not any(all(flags[n] for _, flags in rows) for n in range(count))


def culprits(items: Sequence[_T], fails: Callable[[Sequence[_T]], bool]) -> list[_T]:
    """Return a minimal part of ``items`` that ``fails``.

    Blocks of items are dropped if the others still fail: halves first, at last single items. So k
    culprits of n items take about k log n trials, and one trial for each at the end.
    """
    kept, size = list(items), max(1, len(items) // 2)
    while True:
        at = 0
        while at < len(kept):
            others = kept[:at] + kept[at + size :]
            if others and fails(others):
                kept = others
            else:
                at += size
        if size == 1:
            return kept
        size //= 2


def least_culprits(sources: Sequence[str], fails: Callable[[Sequence[str]], bool]) -> str:
    """Return the message that names the ``sources`` that together leave no plan.

    When time runs out, it names all sources that were not dropped.
    """
    end = time.monotonic() + _PATIENCE_S
    found = culprits(sources, lambda kept: time.monotonic() < end and fails(kept))
    if len(found) == 1:
        return f"{found[0]}: leaves no plan"
    return f"{_join_sources(found)} contradict each other: together they leave no plan"


def _join_sources(sources: Sequence[str]) -> str:
    if len(sources) > _SHOWN:
        return f"{', '.join(sources[:_SHOWN])} and {len(sources) - _SHOWN} more"
    return ", ".join(sources[:-1]) + f" and {sources[-1]}"

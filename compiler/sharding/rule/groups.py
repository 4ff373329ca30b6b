"""Dimensions of a program that ops pass on to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.blocks import Place
from tensoropt.compiler.sharding.rule.op_info import OpInfo

__all__ = ["Dim", "Groups", "Use"]

Dim = tuple[int, int]
"""A value, and one of its dimensions."""

_NO_DIM = (-1, -1)


@dataclass(frozen=True)
class Use:
    """An op of a program, and the numbers of its values: operands, then results."""

    info: OpInfo
    rule: Rule
    values: tuple[int | None, ...]

    @property
    def operands(self) -> tuple[int, ...]:
        """The operands that are present."""
        own = self.values[: len(self.info.operands)]
        return tuple(value for value in own if value is not None)

    @property
    def results(self) -> tuple[int, ...]:
        """The results that are present."""
        own = self.values[len(self.info.operands) :]
        return tuple(value for value in own if value is not None)

    def dim(self, place: Place) -> Dim | None:
        """Return the value and the dimension at a place, ``None`` for an omitted value."""
        value = self.values[place[0]]
        return None if value is None else (value, place[1])

    def size(self, place: Place) -> int | None:
        """Return the size of a dimension, ``None`` if it is symbolic."""
        tensor = (*self.info.operands, *self.info.results)[place[0]]
        return None if tensor is None else tensor.shape[place[1]]


class Groups:
    """Dimensions in groups that have the same blocks, or units: a union-find."""

    def __init__(self) -> None:
        self._parents: dict[Dim, Dim] = {}

    def find(self, dim: Dim) -> Dim:
        """Return the dimension that stands for a group."""
        path = []
        while (parent := self._parents.get(dim, dim)) != dim:
            path.append(dim)
            dim = parent
        for own in path:
            self._parents[own] = dim
        return dim

    def find_any(self, dims: Sequence[Dim | None]) -> Dim:
        """Return the group of the first dimension that is present."""
        return self.find(next((dim for dim in dims if dim is not None), _NO_DIM))

    def join(self, dims: Sequence[Dim | None]) -> None:
        """Put dimensions into one group."""
        first, *rest = [self.find(dim) for dim in dims if dim is not None] or [_NO_DIM]
        for other in rest:
            self._parents[other] = first

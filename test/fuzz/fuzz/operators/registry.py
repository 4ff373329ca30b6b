"""What may be added to a graph: functions that add one node or a few, with their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fuzz.builder import Builder

__all__ = ["MAKERS", "Maker", "maker"]


class Maker(NamedTuple):
    """Adds to a graph, or raises ``UnsuitableError``; drawn in proportion to ``weight``."""

    add: Callable[[Builder], None]
    weight: float
    since: int


MAKERS: list[Maker] = []


def maker(
    weight: float = 1.0, since: int = 1
) -> Callable[[Callable[[Builder], None]], Callable[[Builder], None]]:
    """Register a function that adds to graphs of opset ``since`` and later."""

    def register(add: Callable[[Builder], None]) -> Callable[[Builder], None]:
        MAKERS.append(Maker(add, weight, since))
        return add

    return register

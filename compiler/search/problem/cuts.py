"""What the tables learn from programs: how much memory a part of a choice is bound to take.

The tables know what an op reads and writes, not what else is alive meanwhile. Where a program needs
more than its tables say, a *cut* tells them: whoever chooses alike for the few nodes that the peak
depends on has at least that much alive. A cut is true of every choice, so that bounds stay bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.layout.layout import Layout
from tensoropt.compiler.search.problem.evaluate import Evaluation, Evaluator, Option
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem

__all__ = ["Cut", "Cuts", "cut_of"]

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Cut:
    """At least ``transient_bytes`` are alive at once if every node of ``masks`` takes one of the
    options that its mask has."""

    masks: tuple[tuple[int, tuple[bool, ...]], ...]
    transient_bytes: int


def cut_of(evaluator: Evaluator, assignment: Sequence[int]) -> Cut:
    """Return why the peak of ``assignment`` is as high as it is; linear in the program's operands.

    Its nodes are those of the graph that choose.
    """
    return _Peak(evaluator, assignment).cut()


class _Moments(Evaluation):
    """Remembers which node each moment is for."""

    def __init__(self, owner: Evaluator) -> None:
        super().__init__(owner)
        self.nodes: list[int] = []

    def node(self, index: int, option: Option) -> None:
        super().node(index, option)
        self.nodes += [index] * (self.lifetimes.step - len(self.nodes))


class _Peak:
    """The moment at which a choice has most alive, and what that depends on."""

    def __init__(self, owner: Evaluator, assignment: Sequence[int]) -> None:
        self.owner, self.graph, self.tables = owner, owner.graph, owner.tables
        self.picked = dict(zip(owner.tables.variables, assignment, strict=True))
        self.walk = _Moments(owner)
        self.walk.run(assignment)
        sums = self.walk.lifetimes.alive_bytes()
        self.bytes = max(sums)
        self.moment = sums.index(self.bytes)
        self.masks: dict[int, Flags] = {}

    def cut(self) -> Cut:
        if self.moment == len(self.walk.nodes):  # what is given away, after the last op
            self._wait(self._alive(), -1, set())
            return self._made()
        index = self.walk.nodes[self.moment]
        runs = self.moment + 1 == len(self.walk.nodes) or self.walk.nodes[self.moment + 1] != index
        touched = {*self._read(index), *(self.graph.nodes[index].results if runs else ())}
        alive = self._alive()
        if runs:
            self._ask(index, self._own_bytes(index) >= self._own_bytes(index)[self.picked[index]])
            touched -= self._elsewhere(alive, index)
        else:
            for value in touched:
                self._exactly(value)
        self._wait(alive, index, touched)
        return self._made()

    def _made(self) -> Cut:
        masks = ((n, tuple(mask.tolist())) for n, mask in sorted(self.masks.items()))
        return Cut(tuple((n, mask) for n, mask in masks if not all(mask)), self.bytes)

    def _alive(self) -> dict[int, set[tuple[object, ...]]]:
        """Return the tensors that are alive at the peak, by value."""
        found: dict[int, set[tuple[object, ...]]] = {}
        for tensor in self.walk.lifetimes.alive(self.moment):
            assert isinstance(tensor, tuple)
            if tensor[0] != "inside":
                found.setdefault(self.owner.whole(tensor[0]), set()).add(tensor)
        return found

    def _read(self, index: int) -> set[int]:
        read = {value for value in self.graph.nodes[index].operands if value is not None}
        return {value for value in read if not self.graph.stays(value)}

    def _own_bytes(self, index: int) -> NDArray[np.float64]:
        return self.tables.node_table(index).transient_bytes

    def _elsewhere(self, alive: dict[int, set[tuple[object, ...]]], index: int) -> set[int]:
        """Return the values that an op reads and that are alive in other layouts too."""
        option = self.owner.option(index, self.picked[index])
        own = set(option.operands)
        return {value for value in self._read(index) if alive.get(value, set()) - own}

    def _wait(
        self, alive: dict[int, set[tuple[object, ...]]], index: int, touched: set[int]
    ) -> None:
        """Ask for what makes the other values take as much as they do while node ``index`` runs."""
        for value in alive.keys() - touched:
            if not self.graph.values[value].uses:  # an input alive in the first step alone
                for read in self._read(index):
                    self._exactly(read)
            first = min((node for node, _ in self.graph.values[value].uses), default=-1)
            if 0 <= index < first:
                self._at_least(value)
            else:
                self._exactly(value)

    def _at_least(self, value: int) -> None:
        held = self.graph.values[value]
        options = self.tables.options[held.producer]
        sizes = np.array(
            [self._size(value, option.results[held.index]) for option in options], dtype=np.float64
        )
        self._ask(held.producer, sizes >= sizes[self.picked[held.producer]])

    def _size(self, value: int, layout: Layout) -> int:
        return self.owner.size_bytes(value, self.owner.number(layout))

    def _exactly(self, value: int) -> None:
        """Ask that a value is made as it is and read as it is."""
        held = self.graph.values[value]
        self._alike(held.producer, [option.results[held.index] for option in self._of(held.producer)])
        for node, operand in held.uses:
            self._alike(node, [option.operands[operand] for option in self._of(node)])

    def _of(self, index: int) -> Sequence:
        return self.tables.options[index]

    def _alike(self, index: int, layouts: Sequence[Layout]) -> None:
        own = layouts[self.picked[index]]
        self._ask(index, np.array([layout == own for layout in layouts]))

    def _ask(self, index: int, mask: Flags) -> None:
        self.masks[index] = self.masks[index] & mask if index in self.masks else mask


@dataclass
class Cuts:
    """Cuts, each known once."""

    evaluator: Evaluator
    known: dict[Cut, None] = field(default_factory=dict)

    def learn(self, assignment: Sequence[int]) -> bool:
        """Take in the cut of an assignment; say whether it is a new one."""
        cut = cut_of(self.evaluator, assignment)
        is_new = cut not in self.known
        self.known[cut] = None
        return is_new

    def added_to(self, problem: Problem) -> Problem:
        """Return ``problem`` with a node more per cut: which of the masks is not met, or all are.

        The nodes of the problem come first.
        """
        nodes, edges = list(problem.nodes), list(problem.edges)
        position = {node: n for n, node in enumerate(self.evaluator.tables.variables)}
        for cut in self.known:
            here = len(nodes)
            count = len(cut.masks)
            nodes.append(
                NodeTable(
                    np.zeros(count + 1),
                    transient_bytes=np.append(np.zeros(count), cut.transient_bytes),
                )
            )
            for place, (node, mask) in enumerate(cut.masks):
                times = np.zeros((len(mask), count + 1))
                times[np.array(mask), place] = np.inf
                edges.append(EdgeTable(position[node], here, times))
        return Problem(nodes, edges)

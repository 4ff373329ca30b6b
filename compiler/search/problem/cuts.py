"""Cuts that the tables learn from programs: lower bounds on the memory of partial assignments.

The tables charge the operands and results of an op, but no other live tensors. If a program needs
more memory than its tables charge, a *cut* is added. It bounds the memory of every assignment with
the same choices for the few nodes that the peak depends on. A cut holds for every assignment, so
bounds stay valid.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.evaluate import evaluator_of
from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.program.program import read
from tensoropt.compiler.search.problem.cost_tables import Assignment, Flags
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem, TablePoint
from tensoropt.compiler.search.problem.sums import Sums
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.search.problem.waiting import Waits
from tensoropt.runtime.layout.layout import Layout

__all__ = ["Cut", "Cuts"]


@dataclass(frozen=True)
class Cut:
    """At least ``transient_bytes`` are live if each node of ``masks`` takes an option of its mask.

    Nodes are nodes of the problem.
    """

    masks: tuple[tuple[int, tuple[bool, ...]], ...]
    transient_bytes: int


class _Peak:
    """The memory peak of a plan, and the choices that it depends on.

    ``index`` is the node at the peak, -1 at the end; ``runs`` is false if a tensor is resharded for
    it. ``before`` is the node that ran before.
    """

    def __init__(self, tables: MeshTables, plan: Assignment) -> None:
        self.tables, self.graph, self.evaluator = tables, tables.graph, evaluator_of(tables)
        self.picked = dict(zip(tables.variables, plan.tolist(), strict=True))
        self.record = self.evaluator.record(plan, joins=False)
        sums = self.record.alive_bytes()
        self.moment = int(sums.argmax())
        self.bytes = int(sums[self.moment])
        self.masks: dict[int, Flags] = {}
        moments = dict(enumerate(self._moments()))
        self.index, self.runs, self.before = moments.get(self.moment, (-1, False, -1))

    def _moments(self) -> Iterator[tuple[int, bool, int]]:
        """Yield the node of each moment, whether it runs then, and the node that ran before."""
        count, before = 0, -1
        for position, value, _, _, moment in self.record.events.tolist():
            if value >= 0:
                continue  # a reshard before its node, one moment per step
            index = self.tables.variables[position]
            for _ in range(count, moment):
                yield index, False, before
            count = max(count, moment)
            node = self.graph.nodes[index]
            if isinstance(node, Op) and not node.constant and not node.passes:
                yield index, True, before
                count, before = count + 1, index

    def cut(self) -> Cut:
        index, runs = self.index, self.runs
        if index < 0:  # the outputs, after the last op
            self._wait(self._alive(), -1, set())
            return self._make_cut()
        touched = {*self._read(index), *(self.graph.nodes[index].results if runs else ())}
        alive = self._alive()
        if runs and not self._fills(index):
            self._ask(index, self._own_bytes(index) >= self._own_bytes(index)[self.picked[index]])
            touched -= self._elsewhere(alive, index)
        else:
            for value in touched:
                self._exactly(value)
        self._wait(alive, index, touched)
        return self._make_cut()

    def _make_cut(self) -> Cut:
        asked = self.tables.on_variables(self.masks)
        masks = ((n, tuple(mask.tolist())) for n, mask in sorted(asked.items()))
        return Cut(tuple((n, mask) for n, mask in masks if not all(mask)), self.bytes)

    def _alive(self) -> dict[int, set[int]]:
        """Return the layouts of live values at the peak; -1 between the steps of a reshard."""
        found: dict[int, set[int]] = {}
        for value, layout, first, last, _ in self.record.lives.tolist():
            if first <= self.moment <= last and value >= 0:
                found.setdefault(value, set()).add(layout)
        return found

    def _read(self, index: int) -> set[int]:
        read = {value for value in self.graph.nodes[index].operands if value is not None}
        return read - self.graph.storage.staying

    def _own_bytes(self, index: int) -> NDArray[np.float64]:
        return self.tables.node_table(index).transient_bytes

    def _fills(self, index: int) -> bool:
        """Require the chosen option of a node if it fills operands; return whether it does.

        The layouts of all live tensors are then required exactly.
        """
        option = self.tables.options[index][self.picked[index]]
        if not self.tables.fills(self.graph.nodes[index], option):
            return False
        self._ask(index, np.arange(len(self.tables.options[index])) == self.picked[index])
        return True

    def _elsewhere(self, alive: Mapping[int, set[int]], index: int) -> set[int]:
        """Return the operands of an op that are live in other layouts too."""
        wanted = self.tables.options[index][self.picked[index]].operands
        own: dict[int, set[int]] = {}
        for operand, value in read(self.graph, self.graph.nodes[index]):
            own.setdefault(value, set()).add(self.evaluator.number(wanted[operand]))
        return {value for value in self._read(index) if alive.get(value, set()) - own[value]}

    def _wait(self, alive: Mapping[int, set[int]], index: int, touched: set[int]) -> None:
        """Require layouts that give other live values their size while node ``index`` runs."""
        for value in alive.keys() - touched:
            if not self.graph.values[value].uses:  # an input that is live in the first step only
                for read in self._read(index):
                    self._exactly(read)
            first = min((node for node, _ in self.graph.values[value].uses), default=-1)
            if 0 <= index < first and self._has_one_layout(value, alive[value]):
                self._at_least(value)
            else:
                self._exactly(value)

    def _has_one_layout(self, value: int, layouts: Set[int]) -> bool:
        """Return whether a value live in ``layouts`` has one reader, and is not within a reshard.

        Its layout is then the smaller of its made and its read layout.
        """
        return len(self.graph.values[value].uses) == 1 and len(layouts) == 1 and -1 not in layouts

    def _at_least(self, value: int) -> None:
        """Require options that make and read a value with one reader at no smaller size."""
        held = self.graph.values[value]
        ((reader, operand),) = held.uses
        ends = {
            held.producer: [o.results[held.index] for o in self.tables.options[held.producer]],
            reader: [o.operands[operand] for o in self.tables.options[reader]],
        }
        sizes = {
            node: np.array([tensor_bytes(held.info, x, self.tables.mesh) for x in layouts])
            for node, layouts in ends.items()
        }
        own = min(size[self.picked[node]] for node, size in sizes.items())
        for node, size in sizes.items():
            self._ask(node, size >= own)

    def _exactly(self, value: int, parts: Container[int] | None = None) -> None:
        """Require the chosen layouts of a value at its producer and its readers in ``parts``."""
        held, options = self.graph.values[value], self.tables.options
        self._require_same(
            held.producer, [option.results[held.index] for option in options[held.producer]]
        )
        for node, operand in held.uses:
            if parts is None or self.graph.nodes[node].part in parts:
                self._require_same(node, [option.operands[operand] for option in options[node]])

    def _require_same(self, index: int, layouts: Sequence[Layout]) -> None:
        own = layouts[self.picked[index]]
        self._ask(index, np.array([layout == own for layout in layouts]))

    def _ask(self, index: int, mask: Flags) -> None:
        self.masks[index] = self.masks[index] & mask if index in self.masks else mask


class _StepPeak(_Peak):
    """The peak of a training step, in which a tensor may overwrite another."""

    def cut(self) -> Cut:
        index, alive = self.index, self._alive()
        fills = index >= 0 and self._fills(index)
        covered = self._own(index) if self.runs and not fills else set[int]()
        for value in alive.keys() - covered:
            if self._is_unread(value, index) and self._has_one_layout(value, alive[value]):
                self._at_least(value)
            else:
                self._whole(value, index)
        return self._make_cut()

    def _own(self, index: int) -> set[int]:
        """Require at least the chosen sizes of an op's own tensors; return these values."""
        node, options = self.graph.nodes[index], self.tables.options[index]
        picked, covered = options[self.picked[index]], set[int]()
        alive = self._alive()
        sides = ((node.operands, "operands"), (node.results, "results"))
        for values, side in sides:
            for place, value in enumerate(values):
                if value not in alive or self._is_entangled(value, index, alive):
                    continue
                layouts = [getattr(option, side)[place] for option in (*options, picked)]
                info = self.graph.values[value].info
                *sizes, own = (tensor_bytes(info, x, self.tables.mesh) for x in layouts)
                self._ask(index, np.array([size >= own for size in sizes]))
                covered.add(value)
        return covered

    def _is_entangled(self, value: int, index: int, alive: Mapping[int, set[int]]) -> bool:
        """Return whether a value may be live in another layout than the op reads or makes."""
        node = self.graph.nodes[index]
        every = [*node.operands, *node.results]
        several = every.count(value) > 1 or len(alive[value]) > 1
        return several or value in self.graph.storage.staying or self._is_shared(value)

    def _is_shared(self, value: int) -> bool:
        """Return whether a value may share memory with another value."""
        nodes = [self.graph.nodes[node] for node, _ in self.graph.values[value].uses]
        nodes.append(self.graph.producer(value))
        is_alias = any(isinstance(node, Op) and node.is_alias for node in nodes)
        return is_alias or value in self.graph.storage.replacing

    def _is_unread(self, value: int, index: int) -> bool:
        uses = self.graph.values[value].uses
        first = min((node for node, _ in uses), default=-1)
        is_unread = 0 <= index < first and value not in self.graph.storage.staying
        return is_unread and not self._is_shared(value)

    def _whole(self, value: int, index: int) -> None:
        """Require the chosen layouts of a value, and of values in the same memory.

        State is fetched again in each part of a step: only the parts that are running count.
        """
        uses = self.graph.values[value].uses
        if value in self.graph.storage.state and index >= 0:
            spans: dict[int, list[int]] = {}
            for node, _ in uses:
                spans.setdefault(self.graph.nodes[node].part, []).append(node)
            self._exactly(value, {p for p, own in spans.items() if min(own) <= index <= max(own)})
        else:
            self._exactly(value)
        for node, _ in uses:
            reader = self.graph.nodes[node]
            for result in reader.results if isinstance(reader, Op) and reader.is_alias else ():
                self._whole(result, index)


class Cuts:
    """The bounds learnt on one mesh: sums of live tensors, and cuts.

    A sum applies to all equal ops and tensors, so that repeated layers keep equal tables.
    """

    def __init__(self, tables: MeshTables) -> None:
        self.tables, self.sums = tables, Sums(Waits(tables))
        self._cuts: dict[Cut, None] = {}

    def __len__(self) -> int:
        return len(self._cuts) + len(self.sums)

    def learn(self, point: TablePoint) -> bool:
        """Learn why the program of ``point`` needs more than its transient bytes.

        Returns whether the lesson is new. Of several lessons the weakest is first, as its tables
        are small.
        """
        kind = _StepPeak if self.tables.graph.trains else _Peak
        peak = kind(self.tables, self.tables.decode(point.assignment))
        if self.sums.learn(point, peak.index, peak.before, runs=peak.runs):
            return True
        return self.tables.is_small and self._add(peak.cut())

    def _add(self, cut: Cut) -> bool:
        is_new = cut not in self._cuts
        self._cuts[cut] = None
        return is_new

    def added_to(self, problem: Problem) -> Problem:
        """Return ``problem`` with all lessons; its own nodes come first.

        Each cut adds a node. Its options are the masks that an assignment may violate, and the case
        that it violates none.
        """
        nodes, edges = list(problem.nodes), list(problem.edges)
        self.sums.add_to(nodes, edges)
        for cut in self._cuts:
            self._add_cut(cut, nodes, edges)
        return Problem(nodes, edges)

    def _add_cut(self, cut: Cut, nodes: list[NodeTable], edges: list[EdgeTable]) -> None:
        here, count = len(nodes), len(cut.masks)
        bytes_ = np.append(np.zeros(count), cut.transient_bytes)
        nodes.append(NodeTable(np.zeros(count + 1), transient_bytes=bytes_))
        for place, (node, mask) in enumerate(cut.masks):
            times = np.zeros((len(mask), count + 1))
            times[np.array(mask), place] = np.inf
            edges.append(EdgeTable(node, here, times))

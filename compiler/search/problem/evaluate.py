"""The cost of one complete assignment, as the emitted graphs will have it.

The search charges every use of a tensor for its own reshard and knows the memory of one step at a
time. Here each distinct reshard is paid once and memory follows from the lifetimes of all tensors
over the program, in the order that the emitted graphs keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tensoropt.compiler.layout.layout import Layout
from tensoropt.compiler.reshard.shared_tree import spread
from tensoropt.compiler.search.problem.graph import Node
from tensoropt.compiler.search.problem.tables import MeshTables, tensor_bytes
from tensoropt.dialects.lifetimes import Lifetimes

__all__ = ["Cost", "Evaluation", "Evaluator", "Option", "ProgramCost"]


@dataclass(frozen=True)
class Cost:
    """Predicted time of a step and memory of a device."""

    compute_s: float
    communication_s: float
    static_bytes: int
    transient_bytes: int

    @property
    def time_s(self) -> float:
        return self.compute_s + self.communication_s

    @property
    def memory_bytes(self) -> int:
        return self.static_bytes + self.transient_bytes


@dataclass(frozen=True)
class ProgramCost(Cost):
    """What a whole program costs, a training step with one micro-batch.

    ``update_s`` is the part of its time that is spent once, however many micro-batches there are.
    """

    update_s: float

    def step_s(self, micro_batches: int) -> float:
        """Return the time of a training step with that many micro-batches."""
        return micro_batches * (self.time_s - self.update_s) + self.update_s


_Constant = tuple[int, int, int]
"""The first node that makes the same, which of its results, and the layout it is read in."""


@dataclass(frozen=True)
class Option:
    """What one strategy of one node costs; layouts are numbers, which hash faster.

    ``operands`` holds (value, layout) of what is read, private parameters left out; ``results``
    what is made, with its bytes, ``None`` where it is folded at load or counted with what stays. An
    option that ``runs`` is a step. State read in a later part of a training step counts as another
    value, a *view*: it is fetched anew. ``updated`` is what is written where the old state was. One
    that ``is_alias`` makes nothing: its result is its operand; one that ``passes`` does not run.
    ``inner_bytes`` are what its bodies hold. ``constants`` holds what is read of what is folded at
    load, with its bytes: that stays.
    """

    compute_s: float
    inner_s: float
    static_bytes: int
    operands: tuple[tuple[int, int], ...]
    results: tuple[tuple[tuple[int, int], int | None], ...]
    runs: bool
    updated: tuple[int, int] | None = None
    is_alias: bool = False
    passes: bool = False
    inner_bytes: int = 0
    constants: tuple[tuple[_Constant, int], ...] = ()


_Costs = tuple[float, float, int]
_Numbers = tuple[int, ...]


class Evaluator:
    """Costs complete assignments on one mesh; what they share is computed once.

    So is what nodes of equal tables (repeated layers) and tensors alike have in common.
    """

    def __init__(self, tables: MeshTables) -> None:
        self.tables = tables
        self.graph = tables.graph
        self.layouts: list[Layout] = []
        self._numbers: dict[Layout, int] = {}
        first: dict[object, int] = {}
        self._alike = [first.setdefault(v.info, i) for i, v in enumerate(self.graph.values)]
        self.option = cache(self._option)
        self._shared = cache(self._equal_part)
        self._bytes = cache(self._part_bytes)
        self._path = cache(self._shortest)
        self._tree = cache(self._cheapest)

    def evaluate(self, assignment: Sequence[int]) -> ProgramCost:
        """Return the cost of giving each choosing node the strategy of that number.

        ``assignment`` is in the order of ``tables.variables``. Linear in the operands of the
        program.
        """
        return Evaluation(self).run(assignment)

    def _number(self, layout: Layout) -> int:
        if layout not in self._numbers:
            self._numbers[layout] = len(self.layouts)
            self.layouts.append(layout)
        return self._numbers[layout]

    def _option(self, index: int, picked: int) -> Option:
        node = self.graph.nodes[index]
        costs, wanted, made = self._shared(self.tables.alike[index], picked)
        operands = tuple(
            (self._view(node, value), wanted[operand])
            for operand, value in enumerate(node.operands)
            if value is not None and not self.graph.producer(value).private
        )
        compute_s, inner_s, static_bytes = costs
        return Option(
            compute_s,
            inner_s,
            0 if node.constant else static_bytes,
            operands,
            tuple(
                (tensor, None if self.graph.stays(tensor[0]) else self.size_bytes(*tensor))
                for tensor in zip(node.results, made, strict=True)
            ),
            node.kind == "op" and not node.constant,
            operands[0] if node.updates is not None else None,
            node.is_alias,
            node.passes,
            0 if node.info is None else node.info.inner_bytes,
            () if node.constant else tuple(self._constants(operands)),
        )

    def _constants(self, operands: Iterable[tuple[int, int]]) -> Iterator[tuple[_Constant, int]]:
        for value, layout in operands:
            held = self.graph.values[self.whole(value)]
            if self.graph.nodes[held.producer].constant:
                key = (self.graph.alike[held.producer], held.index, layout)
                yield key, self.size_bytes(value, layout)

    def is_constant(self, view: int) -> bool:
        """Say whether a value is folded at load."""
        return self.graph.producer(self.whole(view)).constant

    def is_update(self, index: int) -> bool:
        """Say whether a node belongs to the update of a training step, a result as what makes it
        does."""
        node = self.graph.nodes[index]
        if node.kind == "result" and node.operands[0] is not None:
            node = self.graph.producer(node.operands[0])
        return node.phase == "update"

    def _view(self, node: Node, value: int) -> int:
        """Return the number under which ``node`` reads a value: state anew in each part."""
        if self.graph.producer(value).state is None:
            return value
        return value + self.graph.part(node) * len(self.graph.values)

    def whole(self, view: int) -> int:
        """Return the value that a view is of."""
        return view % len(self.graph.values)

    def _equal_part(self, index: int, picked: int) -> tuple[_Costs, _Numbers, _Numbers]:
        """Return what an option is for all nodes alike: its costs, and operands' and results'
        layouts."""
        node, strategy = self.graph.nodes[index], self.tables.options[index][picked]
        costs = (
            self.tables.op_time_s(node, strategy),
            self.tables.inner_time_s(node, strategy),
            self.tables.static_bytes(node, strategy),
        )
        wanted, made = (
            tuple(map(self._number, layouts)) for layouts in (strategy.operands, strategy.results)
        )
        return costs, wanted, made

    def size_bytes(self, value: int, layout: int) -> int:
        """Return the bytes of one rank's part."""
        return self._bytes(self._alike[self.whole(value)], layout)

    def _part_bytes(self, value: int, layout: int) -> int:
        info = self.graph.values[value].info
        return tensor_bytes(info, self.layouts[layout], self.tables.mesh)

    def moves(self, value: int, source: int, target: int) -> tuple[float, tuple[int, ...]]:
        """Return the time of a reshard, and the layout after each of its steps."""
        time_s, steps = self._path(self._alike[self.whole(value)], source, target)
        return 0.0 if self.is_constant(value) else time_s, steps

    def tree(self, value: int, source: int, targets: tuple[int, ...]) -> Mapping[int, int]:
        """Return from which layout each of ``targets`` is made: a constant is cut as it lies."""
        if self.is_constant(value):
            return dict.fromkeys(targets, source)
        return self._tree(self._alike[self.whole(value)], source, targets)

    def _cheapest(self, value: int, source: int, targets: tuple[int, ...]) -> Mapping[int, int]:
        info = self.graph.values[value].info
        if info is None:
            return dict.fromkeys(targets, source)
        size, ends = (info.shape, info.item_bytes), [self.layouts[target] for target in targets]
        tree = spread(self.tables.resharder, *size, self.layouts[source], ends)
        return {self._number(target): self._number(held) for target, held in tree.items()}

    def _shortest(self, value: int, source: int, target: int) -> tuple[float, tuple[int, ...]]:
        info = self.graph.values[value].info
        if info is None:
            return 0.0, ()
        ends = self.layouts[source], self.layouts[target]
        path = self.tables.resharder.path(info.shape, info.item_bytes, *ends)
        return path.time_s, tuple(self._number(s.dst) for s in path.steps)


class Evaluation:
    """One walk over the program under one assignment, which adds up what it costs."""

    def __init__(self, owner: Evaluator) -> None:
        self.owner = owner
        self.lifetimes = Lifetimes()
        self.made: dict[int, int] = {}  # value -> the layout its producer makes
        self.wanted: dict[int, dict[int, None]] = {}  # value -> other layouts, as first read
        self.present: set[tuple[int, int]] = set()
        self.updated: set[tuple[int, int]] = set()
        self.same: dict[tuple[int, int], tuple[int, int]] = {}
        graphs = 2 if owner.graph.trains else 1  # a training step is two graphs (decision 12)
        self.compute_s = graphs * owner.tables.device.step_overhead_s
        self.communication_s = 0.0
        self.static_bytes = 0
        self.constants: dict[_Constant, int] = {}

    def run(self, assignment: Sequence[int]) -> ProgramCost:
        variables = self.owner.tables.variables
        options = [self.owner.option(i, int(x)) for i, x in zip(variables, assignment, strict=True)]
        for option in options:
            self._layouts(option)
        self.updated = {option.updated for option in options if option.updated is not None}
        update_s = self.owner.tables.device.step_overhead_s if self.owner.graph.trains else 0.0
        for index, option in zip(variables, options, strict=True):
            before_s = self.compute_s + self.communication_s
            self.node(index, option)
            if self.owner.is_update(index):
                update_s += self.compute_s + self.communication_s - before_s
        peak = self.lifetimes.peak_bytes()
        static_bytes = self.static_bytes + sum(self.constants.values())
        return ProgramCost(self.compute_s, self.communication_s, static_bytes, peak, update_s)

    def _layouts(self, option: Option) -> None:
        """Note which layouts there will be."""
        for value, layout in option.operands:
            if value not in self.made:  # a view
                self.made[value] = self.made[self.owner.whole(value)]
                self.present.add((value, self.made[value]))
            if layout != self.made[value]:
                self.wanted.setdefault(value, {})[layout] = None
        self.made.update(tensor for tensor, _ in option.results)

    def node(self, index: int, option: Option) -> None:
        """Run the node of that index, after the reshards of what it is the first to read."""
        self.compute_s += option.compute_s
        self.communication_s += option.inner_s
        self.static_bytes += option.static_bytes
        self.constants.update(option.constants)
        for tensor in option.operands:
            if tensor not in self.present:
                self._reshard(*tensor)
        for tensor in option.operands:
            self.lifetimes.use(self.memory(tensor))
        for tensor, size_bytes in option.results:
            self.present.add(tensor)
            if option.is_alias:
                self.same[tensor] = self.memory(option.operands[0])
            elif size_bytes is not None and tensor not in self.updated:
                self.lifetimes.define(tensor, size_bytes)
        if option.runs and not option.passes:
            if option.inner_bytes:
                self.lifetimes.define(("inside", self.lifetimes.step), option.inner_bytes)
            self.lifetimes.advance()

    def memory(self, tensor: tuple[int, int]) -> tuple[int, int]:
        """Return the tensor in whose memory one lies: its own, or that of what was passed on."""
        return self.same.get(tensor, tensor)

    def _reshard(self, value: int, target: int) -> None:
        """Make ``value`` in layout ``target``, from another layout that it may first be made in."""
        tree = self.owner.tree(value, self.made[value], tuple(self.wanted[value]))
        source = tree[target]
        if (value, source) not in self.present:
            self._reshard(value, source)
        self.move(value, source, target)

    def move(self, value: int, source: int, target: int) -> None:
        """Walk the steps from one layout to another; each holds what it reads and what it makes."""
        time_s, steps = self.owner.moves(value, source, target)
        self.present.add((value, target))
        self.communication_s += time_s
        if self.owner.is_constant(value):
            return  # cut when the graph is loaded
        tensor: object = self.memory((value, source))
        for number, layout in enumerate(steps):
            self.lifetimes.use(tensor)
            last = number == len(steps) - 1
            tensor = (value, target) if last else (value, source, target, number)
            if tensor not in self.updated:
                self.lifetimes.define(tensor, self.owner.size_bytes(value, layout))
            self.lifetimes.advance()

"""Explanations of frontier points: splits, communication, time and memory, and their causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tensoropt.compiler.cost.communication import is_measured
from tensoropt.compiler.cost.compute import measured_part
from tensoropt.compiler.cost.expected_error import PlanError
from tensoropt.compiler.layout.mesh import axis_names
from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.evaluate import Evaluator
from tensoropt.compiler.program.graph import Argument, Op, Result
from tensoropt.compiler.program.timeline import Movement, Step, Timeline, timeline_of
from tensoropt.compiler.report.explain.layers import layers_of
from tensoropt.compiler.report.explain.meaning import matrix_of
from tensoropt.compiler.report.explain.neighbours import Groups, neighbour
from tensoropt.compiler.report.explain.splits import Words
from tensoropt.compiler.report.explain.stages import staged_step
from tensoropt.compiler.report.explanation import (
    Communication,
    Costly,
    Explanation,
    Layer,
    Member,
    Memory,
    Neighbour,
    Operation,
    Tensor,
    TimelineEntry,
)
from tensoropt.compiler.report.memory import beside_bytes
from tensoropt.compiler.search.frontier.points import (
    marks,
    micro_batches_of,
    recompute_of,
    replicas_of,
    stages_of,
)
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.plan.entries import PinsEntry

__all__ = ["differences", "explain"]

_COSTLY = 10


def explain(
    point: FrontierPoint,
    points: Sequence[FrontierPoint],
    model: str,
    device: str,
    pins: PinsEntry | None = None,
    error: PlanError | None = None,
) -> Explanation:
    """Return the explanation of ``point``, one of ``points``, the frontier sorted by time.

    ``pins`` are the pins of the search. Times and bytes of the parts add up to the figures that
    the search computed for the point; ``error`` is the expected error of these figures. Linear in
    the operands of the program.
    """
    explainer = _Explainer(point)
    explanation = explainer.explanation(points, model, device)
    return replace(
        explanation,
        pins=pins,
        expected_error=error,
        parts_s=explainer.parts_s(),
        staged=staged_step(point),
        replicas=tuple(replicas_of(point)),
    )


def differences(point: FrontierPoint, others: Sequence[FrontierPoint]) -> dict[int, Neighbour]:
    """Return how each of ``others`` differs from ``point``, by the index of the other point.

    Linear in the operands of the program times the number of points.
    """
    groups = _Explainer(point).operations()
    return {other.index: neighbour(other, groups) for other in others}


@dataclass
class _Draft:
    """A layer while its parts are collected."""

    name: str
    operations: list[Operation] = field(default_factory=list)
    communication: list[Communication] = field(default_factory=list)
    order: list[object] = field(default_factory=list)  # the layers with an equal list are folded
    compute_s: float = 0.0
    communication_s: float = 0.0
    static_bytes: int = 0


class _Explainer:
    def __init__(self, point: FrontierPoint) -> None:
        self.point, self.tables = point, point.tables
        self.graph, self.mesh = point.tables.graph, Mesh(point.mesh)
        self.words = Words(self.graph, self.mesh)
        self.layer = layers_of(self.graph)

    @cached_property
    def timeline(self) -> Timeline:
        return timeline_of(Evaluator(self.tables), self.point.assignment)

    @cached_property
    def group_sizes(self) -> Counter[int]:
        """The number of collectives in each fused group, by the number of the group."""
        return Counter(step.group for step in self.timeline.steps if step.group is not None)

    def explanation(self, points: Sequence[FrontierPoint], model: str, device: str) -> Explanation:
        cost, groups = self.timeline.cost, self._groups()
        layers = [_folded(group) for group in groups]
        named = _by_layer(groups)
        at = next((n for n, p in enumerate(points) if p.index == self.point.index), 0)
        entries = tuple(self._entry(step, n) for n, step in enumerate(self.timeline.steps))
        return Explanation(
            model,
            device,
            self.mesh.shape,
            axis_names(self.mesh.axes),
            self.point.index,
            len(points),
            tuple(marks(points).get(self.point.index, ())),
            recompute_of(self.point),
            micro_batches_of(self.point),
            self.point.time_s,
            self.point.compute_s,
            self.point.communication_s,
            self.point.hidden_s,
            cost.update_s / stages_of(self.point),
            tuple(layers),
            entries,
            self._costly(entries, layers),
            self._memory(),
            neighbour(points[at - 1], named) if at else None,
            neighbour(points[at + 1], named) if at + 1 < len(points) else None,
        )

    def parts_s(self) -> dict[str, float]:
        """Return the seconds of each part of the step that tables of the device measure.

        Of a stage, on average, if there are several.
        """
        found: dict[str, float] = {}
        for step in self.timeline.steps:
            part = self._part(step)
            if part is not None:
                found[part] = found.get(part, 0.0) + step.time_s / stages_of(self.point)
        return found

    def _part(self, step: Step) -> str | None:
        device, movement = self.tables.device, step.movement
        if movement is not None and step.kind == "collective":
            known = is_measured(movement.kind, movement.axes, self.mesh, device)
            return "collectives" if known else None
        if step.kind != "op" or step.node is None:
            return None
        node, strategy = self.graph.op(step.node), self.point.strategies[step.node]
        return measured_part(node.info, node.rule, strategy, self.mesh, device)

    def operations(self) -> Groups:
        """Return the ops of all layers, grouped by equal layers."""
        return _by_layer(self._groups())

    def _groups(self) -> list[list[_Draft]]:
        """Return the layers in groups that do the same."""
        drafts: dict[str, _Draft] = {}
        for entry, step in enumerate(self.timeline.steps):
            if step.node is not None:
                name = self._layer(step)
                self._add(drafts.setdefault(name, _Draft(name)), step, entry)
        for kept in self.timeline.kept:
            name = self.layer[self.graph.values[kept.value].producer]
            drafts.setdefault(name, _Draft(name)).static_bytes += kept.bytes
        groups: dict[object, list[_Draft]] = {}
        for draft in drafts.values():
            groups.setdefault(tuple(draft.order), []).append(draft)
        return list(groups.values())

    def _add(self, draft: _Draft, step: Step, entry: int) -> None:
        if step.kind == "op":
            assert step.node is not None
            operation = self._operation(step.node, step.time_s, entry)
            draft.operations.append(operation)
            draft.compute_s += step.time_s
            draft.order.append(
                (
                    operation.op,
                    tuple(split.without_weight() for split in operation.splits),
                    step.time_s,
                )
            )
        else:
            moved = self._communication(step, entry)
            draft.communication.append(moved)
            draft.communication_s += step.time_s
            draft.order.append((moved.kind, moved.axes, moved.bytes))

    def _layer(self, step: Step) -> str:
        """Return the layer of a step.

        A resharded tensor belongs to the layer of its producer, an argument to its reader's layer.
        """
        movement = step.movement
        if movement is not None and movement.value is not None:
            producer = self.graph.values[movement.value].producer
            if isinstance(self.graph.nodes[producer], Op):
                return self.layer[producer]
        assert step.node is not None
        return self.layer[step.node]

    def _operation(self, index: int, time_s: float, entry: int) -> Operation:
        node, strategy = self.graph.op(index), self.point.strategies[index]
        matrix = matrix_of(self.graph, node)
        is_attention = self.words.meanings.is_attention(node)
        values = enumerate(node.operands)
        weights = [n for n, v in values if v in self.graph.storage.weights]
        if is_attention:  # leave out tables of angles and biases
            weights = [n for n in weights if n == matrix]
        named = (self.words.name(node, n) for n in weights)
        return Operation(
            node.name,
            node.info.name,
            node.phase or "",
            tuple(name for name in named if name),
            self.words.splits(node, strategy),
            tuple(_texts(layout) for layout in strategy.operands),
            tuple(_texts(layout) for layout in strategy.results),
            time_s,
            node.is_forward and (matrix is not None or is_attention),
            entry,
        )

    def _communication(self, step: Step, entry: int) -> Communication:
        movement, node = step.movement, self.graph.nodes[step.node or 0]
        assert movement is not None
        producer = node.name
        if movement.value is not None:
            producer = self.graph.producer(movement.value).name
        why = self._why(movement, step)
        others = self.group_sizes[step.group] - 1 if step.group is not None else 0
        if others:
            why += f"; fused with {others} {'others' if others > 1 else 'other'}"
        if step.beside:
            why += "; overlaps with operators"
        return Communication(
            movement.kind,
            self._tensor(movement.value) if movement.value is not None else f"inside {node.name}",
            axis_names(movement.axes),
            movement.bytes,
            step.time_s,
            why,
            self._phase(step),
            producer,
            self._name(step.node),
            entry,
        )

    def _phase(self, step: Step) -> str:
        """Return the phase of a step; a returned tensor has the phase of its producer."""
        if step.node is None:
            return ""
        node = self.graph.nodes[step.node]
        if isinstance(node, Result) and node.operands[0] is not None:
            node = self.graph.producer(node.operands[0])
        return (node.phase or "") if isinstance(node, Op) else ""

    def _name(self, index: int | None) -> str:
        """Return the name of a node; for a result node, the name of the model's result."""
        if index is None:
            return ""
        node = self.graph.nodes[index]
        return f"the result '{node.returned_as}'" if isinstance(node, Result) else node.name

    def _why(self, movement: Movement, step: Step) -> str:
        if movement.value is None:
            why = "needs all of its parts together" if movement.axes else "runs in parts"
            return f"{self._name(step.node)} {why}"
        assert movement.src is not None and movement.dst is not None
        value, maker = movement.value, self.graph.producer(movement.value)
        reader = self._name(step.node)
        src = self.words.describe(value, movement.src)
        dst = self.words.describe(value, movement.dst)
        verb = "is stored" if isinstance(maker, Argument) else "leaves it"
        if src.startswith("as "):
            return f"{maker.name} leaves {src.removeprefix('as ')}, {reader} reads it {dst}"
        return f"{maker.name} {verb} {src}, {reader} reads it {dst}"

    def _tensor(self, value: int) -> str:
        """Return the name of a tensor: its producer's, with the result's number from 1 on."""
        defined = self.graph.values[value]
        name = self.graph.nodes[defined.producer].name
        return f"{name}:{defined.index}" if defined.index else name

    def _entry(self, step: Step, number: int) -> TimelineEntry:
        blank = TimelineEntry(
            kind=step.kind,
            name="overhead",
            op="",
            layer="",
            phase="",
            start_s=step.start_s,
            end_s=step.start_s + step.time_s,
            time_s=step.time_s,
            memory_bytes=self.timeline.cost.static_bytes + step.memory_bytes,
            tensor="",
            bytes=0,
            axes=(),
            text="fixed cost of a run",
        )
        if step.node is None:
            return blank
        layer = self._layer(step)
        if step.kind == "op":
            op = self._operation(step.node, step.time_s, number)
            return replace(
                blank,
                name=op.name,
                op=op.op,
                layer=layer,
                phase=op.phase,
                tensor=op.name,
                bytes=sum(self._result_bytes(step.node)),
                axes=tuple(dict.fromkeys(axis for split in op.splits for axis in split.axes)),
                text=op.text,
            )
        moved = self._communication(step, number)
        return replace(
            blank,
            name=moved.producer,
            op=moved.kind,
            layer=layer,
            phase=moved.phase,
            tensor=moved.tensor,
            bytes=moved.bytes,
            axes=moved.axes,
            text=moved.why,
            reader=moved.consumer,
            beside=step.beside,
        )

    def _result_bytes(self, index: int) -> Sequence[int]:
        node, strategy = self.graph.nodes[index], self.point.strategies[index]
        return [
            tensor_bytes(self.graph.values[value].info, layout, self.mesh)
            for value, layout in zip(node.results, strategy.results, strict=True)
        ]

    def _costly(
        self, entries: Sequence[TimelineEntry], layers: Sequence[Layer]
    ) -> tuple[Costly, ...]:
        """Return the entries of most time; equal entries of equal layers share a row."""
        place = {
            m.name: (number, layer) for number, layer in enumerate(layers) for m in layer.members
        }
        seen: dict[str, int] = {}
        rows: dict[tuple[int, int], list[TimelineEntry]] = {}
        for number, entry in enumerate(entries):
            at = seen[entry.layer] = seen.get(entry.layer, -1) + 1
            key = (place[entry.layer][0], at) if entry.layer in place else (-1, number)
            rows.setdefault(key, []).append(entry)
        found = []
        for own in rows.values():
            first, time_s = own[0], sum(entry.time_s for entry in own)
            title = place[first.layer][1].title if first.layer in place else ""
            share = time_s / self.timeline.cost.time_s if time_s else 0.0
            row = (first.kind, first.name, first.op, title, len(own), time_s, share, first.text)
            found.append(Costly(*row))
        return tuple(sorted(found, key=lambda row: -row.time_s)[:_COSTLY])

    def _memory(self) -> Memory:
        timeline = self.timeline
        parts: dict[str, int] = {}
        for kept in timeline.kept:
            parts[kept.kind] = parts.get(kept.kind, 0) + kept.bytes
        at = next(
            (n for n, s in enumerate(timeline.steps) if s.moment == timeline.peak_moment), None
        )
        return Memory(
            timeline.cost.static_bytes,
            timeline.cost.transient_bytes,
            beside_bytes(self.point),
            dict(sorted(parts.items(), key=lambda part: -part[1])),
            tuple(
                self._described(kept.value, kept.kind, kept.layout, kept.bytes)
                for kept in sorted(timeline.kept, key=lambda kept: -kept.bytes)
            ),
            tuple(
                self._described(alive.value, "activation", alive.layout, alive.bytes)
                for alive in timeline.peak
            ),
            at,
        )

    def _described(self, value: int | None, kind: str, layout: Layout | None, size: int) -> Tensor:
        if value is None:
            return Tensor("inside a body", "inside", "", (), size)
        layer = self.layer[self.graph.values[value].producer]
        return Tensor(self._tensor(value), kind, layer, _texts(layout), size)


def _texts(layout: Layout | None) -> tuple[str, ...]:
    return () if layout is None else tuple(layout.texts)


def _by_layer(groups: Sequence[Sequence[_Draft]]) -> Groups:
    return [{draft.name: draft.operations for draft in group} for group in groups]


def _folded(group: Sequence[_Draft]) -> Layer:
    first = group[0]
    return Layer(
        tuple(Member(draft.name, draft.static_bytes) for draft in group),
        tuple(first.operations),
        tuple(first.communication),
        first.compute_s,
        first.communication_s,
    )

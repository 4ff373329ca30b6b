"""Pins bound to a graph: conditions on the strategies of its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tensoropt.compiler.layout.rule import AxisRole
from tensoropt.compiler.layout.rule_text import NamedRule, name_factors
from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, Result
from tensoropt.compiler.program.pins import Condition, Partial, Split, Tensor, Term
from tensoropt.compiler.protos.signatures import is_transposed, signature_of, swap_last_dims
from tensoropt.compiler.search.frontier.kinds import (
    KINDS,
    PARTIAL,
    REPLICATE,
)
from tensoropt.compiler.search.frontier.pins import NODE, Pin
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.dialects.topt import keys
from tensoropt.runtime.layout.layout import PARTIAL_SUM, Layout, Placement

__all__ = ["Activations", "bind", "pinned", "unsplit_notes"]

Activations = Mapping[str, tuple[str, int]]
"""By the name of a tensor between nodes: the node that makes it, and which of its results."""


def pinned(graph: Graph, pins: Sequence[Pin], activations: Activations) -> Graph:
    """Return ``graph`` with the conditions of ``pins`` on its nodes.

    Raises UserError for a pin without a match, or if no match has the factors that it names.
    """
    annotated, there = _annotated_count(graph, pins)
    if annotated and not there:
        raise UserError(f"--pins: none of the {annotated} annotated nodes is in the model")
    found: dict[int, list[Condition]] = {}
    for pin in pins:
        for index, condition in bind(graph, pin, activations):
            found.setdefault(index, []).append(condition)
    conditions = {index: tuple(own) for index, own in found.items()}
    return replace(graph, conditions=conditions)


def _annotated_count(graph: Graph, pins: Sequence[Pin]) -> tuple[int, int]:
    """Return the number of annotated nodes, and the number that the graph still has."""
    names = [pin.pattern for pin in pins if pin.signature is not None]
    return len(names), len(set(names) & {node.name for node in graph.nodes if _is_own_op(node)})


def bind(graph: Graph, pin: Pin, activations: Activations) -> Iterator[tuple[int, Condition]]:
    """Yield the nodes of ``graph`` that ``pin`` matches, each with its condition."""
    if pin.is_node:
        yield from _of_nodes(graph, pin)
        return
    for index, subject in _tensors(graph, pin, activations):
        yield index, _condition(pin, replace(subject, shape=_shape(graph, index, subject)))


def _shape(graph: Graph, index: int, subject: Tensor) -> tuple[int | None, ...] | None:
    node = graph.nodes[index]
    values = node.operands if subject.side == "operand" else node.results
    value = values[subject.number]
    info = None if value is None else graph.values[value].info
    return None if info is None else tuple(info.shape)


def _condition(pin: Pin, subject: Tensor) -> Condition:
    terms, axes = _tensor_terms(pin, subject, pin.layouts[0] if pin.layouts else None)
    return Condition(pin.source, tuple(terms), pin.forbids, axes)


def _tensor_terms(
    pin: Pin, subject: Tensor, layout: Sequence[str] | None
) -> tuple[list[Term], int | None]:
    """Return the terms of a pin for a tensor, and the number of mesh axes that it requires."""
    if layout is None:
        return [Term(subject, Placement.parse(text), axis) for text, axis in pin.says], None
    terms = [Term(subject, Placement.parse(one), axis) for axis, one in enumerate(layout)]
    return terms, len(layout)


def _tensors(graph: Graph, pin: Pin, activations: Activations) -> Iterator[tuple[int, Tensor]]:
    """Yield the nodes with strategies that decide the layouts of a pin's tensors."""
    ends = _ends(graph)
    names = pin.matches(ends)
    for name in names:
        yield from ends[name]
    if names:
        return
    made = {node.name: index for index, node in enumerate(graph.nodes) if _is_own_op(node)}
    inner = {
        name: (made[node], Tensor("result", number))
        for name, (node, number) in activations.items()
        if node in made and number < len(graph.nodes[made[node]].results)
    }
    names = pin.matches(inner)
    for name in names:
        yield inner[name]
    if not names:
        nodes = [node.name for node in graph.nodes if _is_own_op(node)]
        near = f", did you mean '{NODE}{pin.pattern}'?" if pin.matches(nodes) else ""
        near = near or did_you_mean(pin.pattern, [*ends, *inner])
        if not near and not activations:
            near = "; the .onnx file alone has the names of those between nodes"
        raise UserError(f"{pin.source}: matches no tensor of the model{near}")


def _ends(graph: Graph) -> dict[str, list[tuple[int, Tensor]]]:
    """Return the nodes that decide the layouts of inputs, parameters and outputs, by name."""
    found: dict[str, list[tuple[int, Tensor]]] = {}
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Argument) and node.state in (None, "parameter"):
            found.setdefault(node.name, []).append(_find_argument(graph, index))
        elif isinstance(node, Result) and node.is_output:
            found.setdefault(node.returned_as, []).append((index, Tensor("operand", 0)))
    return found


def _find_argument(graph: Graph, index: int) -> tuple[int, Tensor]:
    """Return the node that decides the layout of an argument: for a private parameter, its use."""
    (value,) = graph.nodes[index].results
    if value not in graph.storage.private:
        return index, Tensor("result", 0)
    ((consumer, operand),) = graph.values[value].uses
    return consumer, Tensor("operand", operand, is_stored=True)


def _is_own_op(node: Node) -> bool:
    """Return whether a node is an op of the model: in a training step, of its forward pass."""
    return isinstance(node, Op) and node.is_forward and node.follows is None


def _of_nodes(graph: Graph, pin: Pin) -> Iterator[tuple[int, Condition]]:
    ops = {node.name: index for index, node in enumerate(graph.nodes) if _is_own_op(node)}
    if pin.signature is not None:
        yield from _annotated(graph, pin, ops)
        return
    names = pin.matches(ops)
    if not names:
        near = did_you_mean(pin.pattern, ops)
        raise UserError(f"{pin.source}: matches no node of the model{near}")
    exact = names == [pin.pattern]
    indices = [ops[name] for name in names if exact or not graph.nodes[ops[name]].constant]
    if pin.layouts:
        for index in indices:
            yield index, _exact(graph.nodes[index], pin)
        return
    found = list(_split(graph, pin, indices))
    if not found:
        raise _no_factor(graph, pin, indices)
    yield from found


def _annotated(graph: Graph, pin: Pin, ops: Mapping[str, int]) -> Iterator[tuple[int, Condition]]:
    """Yield the condition of an annotation on its node, if the node still exists.

    If a pass transposed an operand, its layout is transposed too. If a pass changed the operator,
    only the results are pinned.
    """
    index = ops.get(pin.pattern)
    if index is None:
        return
    node, terms, axes = graph.op(index), list[Term](), None
    assert node.source is not None
    assert pin.signature is not None
    own = signature_of(node.source)
    for number, (value, layout) in enumerate(
        zip(node.operands, pin.layouts[: pin.operands], strict=False)
    ):
        turn = is_transposed(own, pin.signature, number)
        if value is None or layout is None or turn is None:
            continue
        info = graph.values[value].info
        if turn and info is not None:
            layout = tuple(swap_last_dims(Layout.parse(layout), info.rank).texts)
        subject = Tensor("operand", number, is_stored=value in graph.storage.weights)
        more, axes = _tensor_terms(pin, subject, layout)
        terms += more
    for number, layout in enumerate(pin.layouts[pin.operands :][: len(node.results)]):
        if layout is not None:
            more, axes = _tensor_terms(pin, Tensor("result", number), layout)
            terms += more
    if terms:
        yield index, Condition(pin.source, tuple(terms), pin.forbids, axes)


def _exact(node: Node, pin: Pin) -> Condition:
    """Return the condition that a node has the layouts of a pin."""
    count = len(node.operands), len(node.results)
    if count != (pin.operands, len(pin.layouts) - pin.operands):
        raise UserError(
            f"{pin.source}: '{node.name}' has {count[0]} operands and {count[1]} results, "
            f"expected a layout or * for each"
        )
    slots: list[tuple[int | None, Tensor]] = [
        *((value, Tensor("operand", n)) for n, value in enumerate(node.operands)),
        *((value, Tensor("result", n)) for n, value in enumerate(node.results)),
    ]
    terms, axes = [], None
    for (value, subject), layout in zip(slots, pin.layouts, strict=True):
        if layout is not None and value is not None:
            own, axes = _tensor_terms(pin, subject, layout)
            terms += own
    return Condition(pin.source, tuple(terms), pin.forbids, axes)


def _split(graph: Graph, pin: Pin, indices: Sequence[int]) -> Iterator[tuple[int, Condition]]:
    """Yield the conditions of a pin for the nodes that have every factor it names."""
    if [word for word, _ in pin.says] == [PARTIAL]:
        yield from _partial(graph, pin, indices)
        return
    kinds = {word: KINDS[word](graph) for word, _ in pin.says if word in KINDS}
    for index in indices:
        rule = _rule(graph.op(index))
        terms = []
        for word, axis in pin.says:
            has, role = _role(rule, word, kinds.get(word, {}).get(index))
            if has:
                terms.append(Term(Split(rule), role, axis))
        if len(terms) == len(pin.says):
            yield index, Condition(pin.source, tuple(terms), pin.forbids)


def _partial(graph: Graph, pin: Pin, indices: Sequence[int]) -> Iterator[tuple[int, Condition]]:
    """Yield conditions on partial sums of computed values, if the rule of a node allows them."""
    for index in indices:
        node, weights = graph.op(index), graph.storage.weights
        read = [n for n, v in enumerate(node.operands) if v is not None and v not in weights]
        if node.rule.linear or node.rule.additive:
            terms = tuple(Term(Partial(tuple(read)), PARTIAL_SUM, axis) for _, axis in pin.says)
            yield index, Condition(pin.source, terms, pin.forbids)


def _role(rule: NamedRule, word: str, factor: int | None) -> tuple[bool, AxisRole]:
    """Return whether an op has the factor that ``word`` names, and its role."""
    if word == REPLICATE:
        return True, None
    if word in rule.numbers:
        return True, rule.numbers[word]
    own = None if factor is None else rule.rule.factors[factor]
    return own is not None and own.can_split and own.size is not None, factor


def _rule(op: Op) -> NamedRule:
    assert op.source is not None
    own = keys.RULE.get(op.source.attributes)
    return name_factors(op.rule) if own is None else NamedRule(op.rule, own.names)


def _no_factor(graph: Graph, pin: Pin, indices: Sequence[int]) -> UserError:
    """Return an error that lists the words for a pin, or explains why no node can be split so."""
    kinds = {kind: factors_of(graph) for kind, factors_of in KINDS.items()}
    rules = {index: _rule(graph.op(index)) for index in indices}
    having = [
        kind
        for kind, factors in kinds.items()
        if any(_role(rule, kind, factors.get(index))[0] for index, rule in rules.items())
    ]
    letters = dict.fromkeys(name for rule in rules.values() for name in rule.names)
    known = [*having, REPLICATE, PARTIAL, *letters]
    words = [word for word, _ in pin.says if word not in known] or [pin.says[0][0]]
    expected = f"expected {', '.join(known)}"
    whole = [index for index in indices if index in kinds.get(words[0], {})]
    if whole:
        names = "1 node has" if len(whole) == 1 else f"{len(whole)} nodes have"
        size = rules[whole[0]].rule.factors[kinds[words[0]][whole[0]]].size
        why = "its size is open (--dim gives it one)" if size is None else f"its size is {size}"
        return UserError(
            f"{pin.source}: {names} {words[0]}, but none can split it: in "
            f"'{graph.nodes[whole[0]].name}' {why}; {expected}"
        )
    what = f"none of the {len(indices)} nodes has" if len(indices) > 1 else "the node has no"
    near = did_you_mean(words[0], known)
    return UserError(f"{pin.source}: {what} {words[0]}, {expected}{near}")


def unsplit_notes(graph: Graph, pins: Sequence[Pin]) -> Iterator[str]:
    """Yield a note for each pin with nodes that lack its factors: these stay free."""
    annotated, there = _annotated_count(graph, pins)
    if there < annotated:
        yield f"note: {annotated - there} of the {annotated} annotated nodes are not in the model"
    for pin in pins:
        if pin.is_node and not pin.layouts:
            ops = {n.name: i for i, n in enumerate(graph.nodes) if _is_own_op(n) and not n.constant}
            count, held = len(list(pin.matches(ops))), sum(1 for _ in _of_nodes(graph, pin))
            if 0 < held < count:
                what = ", ".join(word for word, _ in pin.says)
                yield (
                    f"note: {pin.source}: {count - held} of the {count} nodes have no {what} "
                    f"and stay free"
                )

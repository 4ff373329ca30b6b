"""The seeds of a plan: what draws numbers draws the same on all ranks, and on one device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.drawing import DROPOUT, RANDOM
from tensoropt.runtime.support.errors import UserError

if TYPE_CHECKING:
    import onnx

__all__ = ["seeded_model"]

_DRAWING = frozenset((*RANDOM, DROPOUT))
_HOLDERS = frozenset(("If", "Loop", "Scan"))


def seeded_model(model: Path, plan: Plan) -> bytes | None:
    """Return ``model`` with the seeds that ``plan`` has, ``None`` where nothing draws numbers.

    External data stays where it is. Nodes are found by name, those without in their order. Raises
    `UserError` where that does not tell which is which.
    """
    ops = {row["op"] for row in plan.document["strategies"]}
    if not ops & (_DRAWING | _HOLDERS):
        return None
    import onnx

    given = list(_drawing(onnx.load(plan.graph(0), load_external_data=False).graph))
    given = [node for node in given if _seed(node)]
    if not given:
        return None
    whole = onnx.load(model, load_external_data=False)
    if any(not _seed(node) for function in whole.functions for node in _drawing(function)):
        whole = _inlined(model, whole)
    _give(model, [node for node in _drawing(whole.graph) if not _seed(node)], given)
    return bytes(whole.SerializeToString())


def _inlined(model: Path, whole: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``whole`` without functions, as it was compiled: each call draws its own numbers."""
    import onnx.inliner

    try:
        inlined = onnx.inliner.inline_local_functions(whole, convert_version=True)
    except Exception as error:  # the library has no type of its own
        raise UserError(
            f"{model}: functions cannot be inlined: {str(error).splitlines()[0]}"
        ) from None
    del inlined.functions[:]
    return inlined


def _drawing(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that draw numbers, also those inside other nodes, in their order."""
    for node in graph.node:
        if node.op_type in _DRAWING and node.domain in ("", "ai.onnx"):
            yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _drawing(attribute.g)


def _seed(node: onnx.NodeProto) -> list[onnx.AttributeProto]:
    """Return the attribute ``seed``, nothing where there is none."""
    return [attribute for attribute in node.attribute if attribute.name == "seed"][:1]


def _give(model: Path, lacking: list[onnx.NodeProto], given: list[onnx.NodeProto]) -> None:
    counts = Counter(node.name for node in lacking)
    named = {(node.op_type, node.name): node for node in given}
    rest = []
    for node in lacking:
        seed = named.get((node.op_type, node.name)) if counts[node.name] == 1 else None
        if seed is None:
            rest.append(node)
        else:
            node.attribute.extend(_seed(seed))
            given.remove(seed)
    _give_in_order(model, rest, _by_operator(given))


def _give_in_order(
    model: Path, lacking: list[onnx.NodeProto], given: Mapping[str, list[onnx.NodeProto]]
) -> None:
    """Give seeds where each operator has as many nodes as the plan has seeds for."""
    for op_type, nodes in _by_operator(lacking).items():
        seeds = [_seed(node) for node in given.get(op_type, ())]
        if op_type == DROPOUT and not seeds:
            continue  # outside training it draws nothing, and the plan has none
        if len(seeds) != len(nodes):
            raise UserError(
                f"{model}: {len(nodes)} {op_type} nodes draw numbers, and which has which of the "
                f"plan's {len(seeds)} seeds is unknown, expected nodes with names of their own"
            )
        for node, seed in zip(nodes, seeds, strict=True):
            node.attribute.extend(seed)


def _by_operator(nodes: list[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    table: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        table.setdefault(node.op_type, []).append(node)
    return table

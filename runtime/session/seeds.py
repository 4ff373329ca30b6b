"""Seeds of a plan in its model, so that both draw the same random numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.drawing import DROPOUT, RANDOM
from tensoropt.runtime.support.errors import UserError

if TYPE_CHECKING:
    import onnx

__all__ = ["add_seeds"]

_DRAWING = frozenset((*RANDOM, DROPOUT))
_HOLDERS = frozenset(("If", "Loop", "Scan"))


def add_seeds(model: Path, plan: Plan) -> bytes | None:
    """Return ``model`` with the seeds of ``plan``, or None if no node draws random numbers.

    External data stays in its files. Nodes are matched by name, and nodes without unique names in
    file order. Raises `UserError` if the match is ambiguous.
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
        whole = _inline(model, whole)
    _assign(model, [node for node in _drawing(whole.graph) if not _seed(node)], given)
    return bytes(whole.SerializeToString())


def _inline(model: Path, whole: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``whole`` with functions inlined, as the compiler does: each call has its own seed."""
    import onnx.inliner

    try:
        inlined = onnx.inliner.inline_local_functions(whole, convert_version=True)
    except Exception as error:  # the library has no exception type
        raise UserError(
            f"{model}: functions cannot be inlined: {str(error).splitlines()[0]}"
        ) from None
    del inlined.functions[:]
    return inlined


def _drawing(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that draw random numbers, including nodes in bodies, in file order."""
    for node in graph.node:
        if node.op_type in _DRAWING and node.domain in ("", "ai.onnx"):
            yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _drawing(attribute.g)


def _seed(node: onnx.NodeProto) -> list[onnx.AttributeProto]:
    """Return the attribute ``seed`` in a list, which is empty without it."""
    return [attribute for attribute in node.attribute if attribute.name == "seed"][:1]


def _assign(model: Path, lacking: list[onnx.NodeProto], given: list[onnx.NodeProto]) -> None:
    """Copy seeds to nodes with the same unique name, and assign the rest in order."""
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
    seeds_left = _by_operator(given)
    for op_type, nodes in _by_operator(rest).items():
        seeds = [_seed(node) for node in seeds_left.get(op_type, ())]
        if op_type == DROPOUT and not seeds:
            continue  # in inference it draws nothing, and the plan has no seed
        if len(seeds) != len(nodes):
            raise UserError(
                f"{model}: {len(nodes)} {op_type} nodes cannot be matched with the plan's "
                f"{len(seeds)} seeds, expected nodes with unique names"
            )
        for node, found in zip(nodes, seeds, strict=True):
            node.attribute.extend(found)


def _by_operator(nodes: list[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    table: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        table.setdefault(node.op_type, []).append(node)
    return table

"""Features of the nodes of a rank's graph in the cost model: operator, type, FLOPs and bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import onnx

from tensoropt.compiler.cost.compute import FREE, Work, work_of
from tensoropt.compiler.cost.measurements import Context, context_of
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.sharding.rule.describe import Descriptions
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.dialects import onnx as ops
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.session.types import tensor_types
from tensoropt.runtime.support.arithmetic import ONE_PASS
from tensoropt.runtime.support.collectives import DOMAIN
from tensoropt.runtime.support.dtypes import dtype_of_code

__all__ = ["NodeFacts", "read_facts"]

_ALONE = Mesh((1,))


@dataclass(frozen=True)
class NodeFacts:
    """A node of a rank's graph and its features in the cost model.

    ``results`` has every name of a result. ``context`` names the producers of the operands, empty
    for an input or a constant. ``elements`` is the number of elements of the results.
    """

    name: str
    work: Work
    operands: tuple[str, ...]
    results: tuple[str, ...]
    context: Context
    elements: int = 1

    @property
    def intensity(self) -> float:
        """FLOPs per element of the results."""
        return self.work.flops / max(self.elements, 1)


def read_facts(path: Path) -> list[NodeFacts]:
    """Return the nodes of a rank's graph that run: stock operators in order, then the passes over
    arrays (`tensoropt.Elementwise`).

    Collectives, and nodes that ONNX Runtime folds or removes at load, are left out. Linear in
    nodes.
    """
    proto = onnx.load(path, load_external_data=False)
    cut, alone = _without_collectives(proto), path.with_suffix(".alone.onnx")
    alone.write_bytes(cut.SerializeToString())
    try:
        numbers = list(_numbers(driver.load(alone, {})))
    finally:
        alone.unlink()
    nodes = [node for node in cut.graph.node if node.op_type != "Constant"]
    running = [(node, own) for node, own in zip(nodes, numbers, strict=True) if own is not None]
    makers = {value: _name(node) for node, _ in running for value in node.output}
    own = [node for node in proto.graph.node if _is_own(node)]
    makers.update((value, _name(node)) for node in own for value in node.output)
    aliases = _aliases(proto)
    single = [
        NodeFacts(
            node.name,
            known.work,
            tuple(node.input),
            (*node.output, *(alias for value in node.output for alias in aliases[value])),
            context_of(known.work.operator, (makers.get(value, "") for value in node.input)),
            known.elements,
        )
        for node, known in running
    ]
    return [*single, *_passes(proto)]


def _passes(proto: onnx.ModelProto) -> Iterator[NodeFacts]:
    """Yield the passes over arrays; their work is the bytes that they read and write."""
    types = tensor_types(proto.graph)
    for node in proto.graph.node:
        if _name(node) == ONE_PASS:
            arrays = [types[name] for name in (*node.input, *node.output) if name in types]
            moved = sum(dtype_of_code(kind).itemsize * prod(shape) for kind, shape in arrays)
            work = Work(ONE_PASS, "float32", 0.0, float(moved))
            yield NodeFacts(node.name, work, tuple(node.input), tuple(node.output), ())


def _aliases(proto: onnx.ModelProto) -> Mapping[str, list[str]]:
    """Return the results of Identity nodes by the value that they copy.

    ONNX Runtime may retain only these names.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for node in reversed(proto.graph.node):
        if node.op_type == "Identity":
            found[node.input[0]] += [node.output[0], *found[node.output[0]]]
    return found


def _name(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def _without_collectives(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which the results of the runtime's own operators are inputs."""
    cut = onnx.ModelProto()
    cut.CopyFrom(proto)
    del cut.graph.node[:]
    types = {value.name: value for value in (*proto.graph.value_info, *proto.graph.output)}
    for node in proto.graph.node:
        if _is_own(node):
            cut.graph.input.extend(types[value] for value in node.output if value in types)
        else:
            cut.graph.node.append(node)
    if all(node.domain != DOMAIN for node in cut.graph.node):
        kept = [entry for entry in proto.opset_import if entry.domain != DOMAIN]
        del cut.opset_import[:]
        cut.opset_import.extend(kept)
    return cut


def _is_own(node: onnx.NodeProto) -> bool:
    """Return whether a node is a collective, or a pass over arrays, but no attention."""
    return node.domain == DOMAIN and _name(node) not in ops.ATTENTIONS


@dataclass(frozen=True)
class _Known:
    """The work of an op, and the number of elements of its results."""

    work: Work
    elements: int


def _numbers(module: ir.Module) -> Iterator[_Known | None]:
    """Yield the work of each op, or None if it does not run."""
    function, infos = ops.function(module), Descriptions(ops.opsets(module))
    folded = ops.folded_values(function)
    for block in function.regions[0].blocks[0]:
        op = block.operation
        if not ops.is_onnx(op) or op.name in (ops.CONSTANT, ops.NO_VALUE):
            continue
        info = infos.describe(op)
        if info.name in FREE or folded.issuperset(op.results):
            yield None
            continue
        rule = rule_for(info)
        whole = strategies(rule, _ALONE)[0]
        elements = sum(result.elements for result in info.results if result is not None)
        yield _Known(work_of(info, rule, whole, _ALONE), elements)

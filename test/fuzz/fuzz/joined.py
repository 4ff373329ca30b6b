"""The graphs of all ranks as one, whose collectives are ONNX's own operators: no MPI needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from gpu.blocking import make_blocking
from onnx import helper, numpy_helper

from tensoropt.runtime.inspection.transfers import bad_transfers

__all__ = ["StuckError", "join", "prefix"]

_DOMAIN = "tensoropt"
_WIDER = {
    onnx.TensorProto.BOOL: onnx.TensorProto.INT32,
    onnx.TensorProto.INT8: onnx.TensorProto.INT32,
    onnx.TensorProto.UINT8: onnx.TensorProto.INT32,
    onnx.TensorProto.BFLOAT16: onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16: onnx.TensorProto.FLOAT,
}
_SEVERAL = "Combined"  # what the names of nodes that are several collectives begin with
_COMBINED = {"sum": "Add", "max": "Max", "min": "Min"}


class StuckError(Exception):
    """The ranks do not agree on their collectives, or wait for each other."""


def prefix(rank: int) -> str:
    """Return what the names of a rank begin with in the joined graph."""
    return f"r{rank}/"


def join(ranks: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """Return one model that does what ``ranks`` do together.

    Its inputs and outputs are those of each rank, with the rank's `prefix`. Raises StuckError where
    real ranks would wait for ever, or would refuse to go on.
    """
    return _Joined(ranks).model()


class _Joined:
    def __init__(self, ranks: Sequence[onnx.ModelProto]) -> None:
        self.ranks = [_renamed(model, prefix(r)) for r, model in enumerate(ranks)]
        self.types = [_types(model.graph) for model in self.ranks]
        self.places = [0] * len(ranks)
        self.tokens: list[str | None] = [None] * len(ranks)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        # Which are inputs too: ONNX Runtime's inference, which may be wrong, then does not know
        # their values, and cannot object.
        self.given: list[onnx.ValueInfoProto] = []
        self.count = 0
        opsets = {o.domain: o.version for o in ranks[0].opset_import if o.domain != _DOMAIN}
        self.opsets, self.opset = opsets, opsets.get("", 20)

    def model(self) -> onnx.ModelProto:
        while any(self._waiting(rank) is not None for rank in range(len(self.ranks))):
            self._collective()
        graph = onnx.GraphProto(
            name="joined", node=self.nodes, initializer=self.stored, input=self.given
        )
        for model in self.ranks:
            graph.input.extend(model.graph.input)
            graph.output.extend(model.graph.output)
            graph.initializer.extend(model.graph.initializer)
        opsets = [helper.make_opsetid(*item) for item in self.opsets.items()]
        version = self.ranks[0].ir_version
        return helper.make_model(graph, opset_imports=opsets, ir_version=version)

    def _waiting(self, rank: int) -> onnx.NodeProto | None:
        """Go on to the next collective of ``rank`` and return it."""
        nodes = self.ranks[rank].graph.node
        while self.places[rank] < len(nodes):
            node = nodes[self.places[rank]]
            if node.domain == _DOMAIN:
                return node
            self.nodes.append(node)
            self.places[rank] += 1
        return None

    def _collective(self) -> None:
        """Do one collective in which all that take part have arrived."""
        for rank in range(len(self.ranks)):
            node = self._waiting(rank)
            if node is None:
                continue
            group = list(_held(node)["group"])
            arrived = {member: self._waiting(member) for member in group}
            if all(n is not None and list(_held(n)["group"]) == group for n in arrived.values()):
                self._together(arrived)
                return
        raise StuckError("every rank waits for another")

    def _together(self, arrived: dict[int, onnx.NodeProto]) -> None:
        first = next(iter(arrived.values()))
        kinds = {r: [self.types[r][x] for x in _operands(node)] for r, node in arrived.items()}
        same = {
            (node.op_type, str(_held(node)), str(kinds[rank])) for rank, node in arrived.items()
        }
        if len(same) > 1:
            raise StuckError(f"{first.name}: the ranks differ: {sorted(map(str, same))}")
        for rank, node in arrived.items():
            self._pass_token(rank, node)
        make = getattr(self, f"_{first.op_type.removeprefix(_SEVERAL)}")
        inputs = zip(*(_operands(node) for node in arrived.values()), strict=True)
        outputs = zip(*(_results(node) for node in arrived.values()), strict=True)
        each = zip(inputs, outputs, _each(first), next(iter(kinds.values())), strict=True)
        for one_inputs, one_outputs, held, kind in each:
            make(one_inputs, one_outputs, held, kind)
        for rank in arrived:
            self.places[rank] += 1

    def _pass_token(self, rank: int, node: onnx.NodeProto) -> None:
        """Check that the collective takes the token of the one before it."""
        place = _place_of_token(node)
        if self.tokens[rank] not in (None, node.input[place]):
            taken = node.input[place]
            raise StuckError(f"{node.name}: takes token {taken}, not {self.tokens[rank]}")
        self.tokens[rank] = node.output[place]

    def _add(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **held: Any) -> None:
        self.nodes.append(helper.make_node(kind, inputs, outputs, **held))

    def _name(self) -> str:
        self.count += 1
        return f"joined{self.count}"

    def _combined(self, inputs: Sequence[str], reduction: str, kind: int) -> str:
        wider = _WIDER.get(kind)
        if wider is not None:
            inputs = [self._cast(x, wider) for x in inputs]
        total = inputs[0]
        for other in inputs[1:]:
            total, before = self._name(), total
            self._add(_COMBINED[reduction], [before, other], [total])
        return total if wider is None else self._cast(total, kind)

    def _cast(self, x: str, kind: int) -> str:
        self._add("Cast", [x], [name := self._name()], to=kind)
        return name

    def _pieces(self, x: str, dim: int, count: int, kind: tuple[int, Any]) -> list[str]:
        size = kind[1][dim] if kind[1] is not None else None
        if isinstance(size, int) and size % count:
            raise StuckError(f"{x}: a dimension of {size} is cut in {count}")
        names = [self._name() for _ in range(count)]
        if isinstance(size, int):  # of a dimension of nothing, it takes sizes only
            sizes = numpy_helper.from_array(np.full(count, size // count), self._name())
            self.stored.append(sizes)
            self.given.append(helper.make_tensor_value_info(sizes.name, sizes.data_type, [count]))
            self._add("Split", [x, sizes.name], names, axis=dim)
        else:
            held = {"num_outputs": count} if self.opset >= 18 else {}
            self._add("Split", [x], names, axis=dim, **held)
        return names

    def _AllReduce(self, inputs: Any, outputs: Any, held: Any, kind: Any) -> None:  # noqa: N802
        total = self._combined(inputs, held["reduction"].decode(), kind[0])
        for name in outputs:
            self._add("Identity", [total], [name])

    def _AllGather(self, inputs: Any, outputs: Any, held: Any, kind: Any) -> None:  # noqa: N802
        for name in outputs:
            self._add("Concat", inputs, [name], axis=held["dim"])

    def _ReduceScatter(self, inputs: Any, outputs: Any, held: Any, kind: Any) -> None:  # noqa: N802
        total = self._combined(inputs, held["reduction"].decode(), kind[0])
        pieces = self._pieces(total, held["dim"], len(inputs), kind)
        for piece, name in zip(pieces, outputs, strict=True):
            self._add("Identity", [piece], [name])

    def _AllToAll(self, inputs: Any, outputs: Any, held: Any, kind: Any) -> None:  # noqa: N802
        rows = [self._pieces(x, held["split_dim"], len(inputs), kind) for x in inputs]
        for pieces, name in zip(zip(*rows, strict=True), outputs, strict=True):
            self._add("Concat", pieces, [name], axis=held["concat_dim"])

    def _CollectivePermute(self, inputs: Any, outputs: Any, held: Any, kind: Any) -> None:  # noqa: N802
        for name, source in zip(outputs, held["sources"], strict=True):
            self._add("Identity", [inputs[source]], [name])


def _place_of_token(node: onnx.NodeProto) -> int:
    """Return where the token is: in front of several operands, behind one."""
    return 0 if node.op_type.startswith(_SEVERAL) else 1


def _operands(node: onnx.NodeProto) -> list[str]:
    return [name for place, name in enumerate(node.input) if place != _place_of_token(node)]


def _results(node: onnx.NodeProto) -> list[str]:
    return [name for place, name in enumerate(node.output) if place != _place_of_token(node)]


def _each(node: onnx.NodeProto) -> list[dict[str, Any]]:
    """Return the attributes of each collective that a node is."""
    held, operands = _held(node), _operands(node)
    dims = held.pop("dims", None)
    return [held if dims is None else {**held, "dim": dims[i]} for i in range(len(operands))]


def _held(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _types(graph: onnx.GraphProto) -> dict[str, tuple[int, tuple[int | str, ...] | None]]:
    """Return element type and shape of every value that is declared, and of the initializers."""
    found: dict[str, Any] = {t.name: (t.data_type, tuple(t.dims)) for t in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        tensor = value.type.tensor_type
        dims = tuple(
            d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim
        )
        found[value.name] = (tensor.elem_type, dims if tensor.HasField("shape") else None)
    return found


def _renamed(model: onnx.ModelProto, start: str) -> onnx.ModelProto:
    renamed = onnx.ModelProto()
    renamed.CopyFrom(model)
    if problem := next(bad_transfers(model.graph), None):
        raise StuckError(problem)
    nodes = list(make_blocking(model.graph.node))
    del renamed.graph.node[:]
    renamed.graph.node.extend(nodes)
    _rename(renamed.graph, start)
    return renamed


def _rename(graph: onnx.GraphProto, start: str) -> None:
    for held in (graph.input, graph.output, graph.value_info, graph.initializer):
        for item in held:
            item.name = start + item.name
    for node in graph.node:
        node.name = start + node.name
        for names in (node.input, node.output):
            names[:] = [start + name if name else "" for name in names]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, start)

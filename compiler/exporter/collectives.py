"""Lowering of `shard.*` and `topt.axis_constant` for one rank (domain `tensoropt`, version 1).

Every collective takes and returns a token. The chain of tokens fixes the order of collectives, so
that all ranks run them in the same order, regardless of ONNX Runtime's scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from tensoropt.compiler.protos.emitter import Emitter, Lowering
from tensoropt.compiler.protos.types import tensor_element
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.collectives import axes_of
from tensoropt.dialects.elements import dense_to_array
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import node_name
from tensoropt.dialects.opsets import SLICE_OPERANDS_SINCE, WHERE_SINCE
from tensoropt.dialects.topt import AXIS_CONSTANT, WAIT, keys
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.collectives import BY_IR_NAME, DOMAIN

__all__ = ["RankLowerings", "name_of", "settings_of"]


@dataclass
class _Transfer:
    """A started collective: the node that waits for it, its handle, and the names of its results.

    ``waits`` are the waits for its ``count`` results that were lowered so far.
    """

    op_type: str
    name: str
    handle: str
    made: Sequence[str]
    count: int
    waits: list[ir.Operation] = field(default_factory=list)


class RankLowerings:
    """Lowers the operations that differ between ranks, for one rank.

    Each of ``meshes`` stages or replicas has the ranks of one ``mesh``, in sequence.
    """

    def __init__(self, mesh: Mesh, rank: int, opset: int, meshes: int = 1) -> None:
        self.mesh = mesh
        self.opset = opset
        self.number, self.rank = divmod(rank, mesh.size)
        self.meshes = meshes
        self.token: str | None = None
        self.members: list[ir.Operation] = []  # of a combined collective, so far
        self.transfers: dict[ir.Value, _Transfer] = {}  # by their results
        self.left = 1

    def table(self) -> dict[str, Lowering]:
        """Return the lowering of each operation name."""
        older = {"onnx.Where": self._where} if self.opset < WHERE_SINCE else {}
        return {
            **older,
            **dict.fromkeys(BY_IR_NAME, self._collective),
            # Weights must not be reshaped by ONNX Runtime at load, which copies them from the file.
            "onnx.Reshape": Emitter.reshape,
            "onnx.com.microsoft.MoE": self._mixture,
            WAIT: self._wait,
            "shard.all_slice": self._slice,
            AXIS_CONSTANT: lambda emitter, op: emitter.literal(op, self._own(op)),
            "shard.grid": lambda emitter, op: None,
        }

    @staticmethod
    def _mixture(emitter: Emitter, op: ir.Operation) -> None:
        """Lower a mixture of experts, and a Barrier that reads its tokens after it.

        ONNX Runtime 1.31 gives the result the memory of the tokens if no later node reads these,
        and its kernel for CPUs then overwrites them before it has read them. An output of the graph
        has memory of its own.
        """
        is_output = op.results[0] in emitter.values
        emitter.plain(op)
        if not is_output:
            names = [emitter.name(op.results[0]), emitter.name(op.operands[0])]
            barrier = emitter.node("Barrier", names, name=name_of(op, "Barrier"), domain=DOMAIN)
            emitter.values[op.results[0]] = barrier[0]

    def _collective(self, emitter: Emitter, op: ir.Operation) -> None:
        """Lower a collective; collectives to be combined are lowered with the last of them."""
        if op.parent is None or op.parent.name != "func.func":
            raise UserError(f"'{op.name}' op is inside a region, expected it in @main")
        self.left = keys.TOGETHER.get(op.attributes, self.left)
        self.members.append(op)
        self.left -= 1
        if self.left > 0:
            return
        members, self.members, self.left = self.members, [], 1
        if len(members) > 1:
            self._combined(emitter, members)
        else:
            self._single(emitter, op)

    def _single(self, emitter: Emitter, op: ir.Operation) -> None:
        op_type, attributes = BY_IR_NAME[op.name].op_type, settings_of(op)
        name = name_of(op, op_type)
        if keys.START.on(op.attributes):
            self._started(emitter, op_type, name, [op], attributes)
            return
        results = emitter.results(op, name)
        taken, given = self._tokens(emitter, name)
        operands = [*map(emitter.name, op.operands), taken]
        self._node(emitter, op, op_type, name, operands, [*results, given], attributes)

    def _combined(self, emitter: Emitter, members: Sequence[ir.Operation]) -> None:
        """Lower several collectives; the token comes first, as a variadic ONNX operand is last."""
        op = members[0]
        op_type, attributes = BY_IR_NAME[op.name].op_type, settings_of(op)
        if attributes.pop("dim", None) is not None:
            attributes["dims"] = [settings_of(own)["dim"] for own in members]
        kind = f"Combined{op_type}"
        name = name_of(op, kind)
        if keys.START.on(op.attributes):
            self._started(emitter, kind, name, members, attributes)
            return
        results = [emitter.results(own, name_of(own, op_type))[0] for own in members]
        taken, given = self._tokens(emitter, name)
        operands = [taken, *(emitter.name(own.operands[0]) for own in members)]
        self._node(emitter, op, kind, name, operands, [given, *results], attributes)

    def _started(
        self,
        emitter: Emitter,
        kind: str,
        name: str,
        members: Sequence[ir.Operation],
        attributes: Mapping[str, Any],
    ) -> None:
        """Lower the start of collectives; their waits read its handle and results."""
        start = f"{name}Start"
        made = [emitter.results(own, start)[0] for own in members]
        taken, given = self._tokens(emitter, start)
        handle = emitter.value_names.unique(f"{name}_handle")
        emitter.main.value_info.append(_int_info(handle))
        read = [emitter.name(own.operands[0]) for own in members]
        results = [given, handle, *made]
        self._node(emitter, members[0], f"{kind}Start", start, [taken, *read], results, attributes)
        transfer = _Transfer(f"{kind}Wait", f"{name}Wait", handle, made, len(members))
        for own in members:
            self.transfers[own.results[0]] = transfer

    def _wait(self, emitter: Emitter, op: ir.Operation) -> None:
        """Lower a wait; the waits for a combined collective are lowered with the last of them."""
        transfer = self.transfers.get(op.operands[0])
        if transfer is None:
            raise UserError(f"'{op.name}' op waits for a collective without topt.start")
        transfer.waits.append(op)
        if len(transfer.waits) < transfer.count:
            return
        others = [emitter.name(value) for own in transfer.waits for value in [*own.operands][1:]]
        emitter.node(
            transfer.op_type,
            [transfer.handle, *transfer.made, *others],
            name=transfer.name,
            results=[emitter.results(own, transfer.name)[0] for own in transfer.waits],
            domain=DOMAIN,
        )

    def _node(
        self,
        emitter: Emitter,
        op: ir.Operation,
        op_type: str,
        name: str,
        operands: Sequence[str],
        results: Sequence[str],
        attributes: Mapping[str, Any],
    ) -> None:
        emitter.node(
            op_type,
            operands,
            name=name,
            results=results,
            domain=DOMAIN,
            group=self._group(op),
            **attributes,
        )

    def _group(self, op: ir.Operation) -> list[int]:
        """Return the ranks of a collective: along mesh axes, or at one place in all meshes."""
        size = self.mesh.size
        if keys.STAGES.on(op.attributes):
            return [number * size + self.rank for number in range(self.meshes)]
        first = self.number * size
        return [first + rank for rank in self.mesh.group(self.rank, axes_of(op))]

    def _tokens(self, emitter: Emitter, name: str) -> tuple[str, str]:
        """Return the token that a collective takes, and the new token that it returns."""
        taken = self.token or emitter.constant("tensoropt.token", np.zeros(1, np.int64))
        self.token = emitter.value_names.unique(f"{name}_token")
        emitter.main.value_info.append(_int_info(self.token))
        return taken, self.token

    def _slice(self, emitter: Emitter, op: ir.Operation) -> None:
        axes, axis = axes_of(op), ir.IntegerAttr(op.attributes["slice_axis"]).value
        kind, name = ir.RankedTensorType(op.results[0].type), name_of(op, "Slice")
        operands = [emitter.name(op.operands[0])]
        if kind.is_dynamic_dim(axis):
            operands += self._open_bounds(emitter, op, axis, name)
            emitter.node("Slice", operands, name=name, results=emitter.results(op, name))
            return
        size = int(kind.shape[axis])
        start = size * self.mesh.linear(self.rank, axes)
        bounds = {"starts": [start], "ends": [start + size], "axes": [axis]}
        attributes: dict[str, Any] = {**bounds}
        if emitter.opsets[""] >= SLICE_OPERANDS_SINCE:
            operands += [
                emitter.constant(f"{name}_{key}", np.array(value, np.int64))
                for key, value in bounds.items()
            ]
            attributes = {}
        emitter.node("Slice", operands, name=name, results=emitter.results(op, name), **attributes)

    def _open_bounds(
        self, emitter: Emitter, op: ir.Operation, axis: int, name: str
    ) -> Iterator[str]:
        """Yield start, end and axis of this rank's part of a dimension that is sized at run time.

        Part k of n is from k * (size / n) to (k + 1) * (size / n).
        """
        axes = axes_of(op)
        position, pieces = self.mesh.linear(self.rank, axes), self.mesh.extent(axes)

        def emit(op_type: str, suffix: str, *operands: str) -> str:
            result = emitter.value_names.unique(f"{name}_{suffix}")
            emitter.node(op_type, operands, name=f"{name}.{suffix}", results=[result])
            return result

        def literal(suffix: str, value: int) -> str:
            return emitter.constant(f"{name}_{suffix}", np.array([value], np.int64))

        dim = literal("axes", axis)
        size = emit("Gather", "size", emit("Shape", "shape", emitter.name(op.operands[0])), dim)
        part = emit("Div", "part", size, literal("pieces", pieces))
        yield emit("Mul", "start", part, literal("position", position))
        yield emit("Mul", "end", part, literal("next", position + 1))
        yield dim

    def _own(self, op: ir.Operation) -> npt.NDArray[np.generic]:
        """Return this rank's value of a `topt.axis_constant`."""
        values = dense_to_array(op.attributes["values"])
        axes = tuple(int(axis) for axis in ir.DenseI64ArrayAttr(op.attributes["axes"]))
        return np.asarray(values[self.mesh.linear(self.rank, axes)])

    def _where(self, emitter: Emitter, op: ir.Operation) -> None:
        """Lower a `Where` that retains a tensor on one rank and is zero on the others.

        Models of opsets before `Where` have no other `Where`. The rank is known at compile time, so
        Identity, Mul or Clip is enough.
        """
        keep = self._own(ir.OpResult(op.operands[0]).owner.operation)
        operands, attributes = [emitter.name(op.operands[1])], dict[str, Any]()
        op_type, element = "Identity", tensor_element(op.operands[1].type)
        if not keep.item() and element.is_integer:
            op_type = "Mul"
            operands.append(emitter.constant("zero", np.zeros((), element.dtype)))
        elif not keep.item():
            op_type, attributes = "Clip", {"min": 0.0, "max": 0.0}  # 0 times infinity is no zero
        name = name_of(op, op_type)
        emitter.node(op_type, operands, name=name, results=emitter.results(op, name), **attributes)


def _int_info(name: str) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [1])


def name_of(op: ir.Operation, op_type: str) -> str:
    """Return the name of the node that an operation is lowered to."""
    source = node_name(op)
    return f"{source}.{op_type}" if source else op_type


def settings_of(op: ir.Operation) -> dict[str, Any]:
    """Return the attributes of a collective's operator: dimensions, positions, a reduction."""
    attributes = BY_IR_NAME[op.name].attributes.items()
    return {name: _plain(op.attributes[source]) for name, source in attributes}


def _plain(attribute: ir.Attribute) -> int | list[int] | str:
    """Return a dimension, positions along axes, or the name of a reduction."""
    if isinstance(attribute, ir.IntegerAttr):
        return int(attribute.value)
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return [int(position) for position in attribute]
    return str(attribute).removesuffix(">").split()[-1]  # `#shard<partial sum>`

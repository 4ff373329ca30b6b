"""Lowering for TensorRT 11: `DistCollective` nodes, and no operators of ONNX Runtime.

TensorRT's multi-device operator works along the first dimension of its input, over all ranks or
the listed group. Domain, attribute names and lower-case values follow NVIDIA's page on the operator
and the nodes that Polygraphy's `multi-device shard` inserts. Other dimensions are transposed to the
front and back. There is no token, as a rank's engine runs its collectives in sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensoropt.compiler.exporter.collectives import RankLowerings, name_of, settings_of
from tensoropt.compiler.protos.emitter import Emitter, Lowering
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx as onnx_ops
from tensoropt.dialects.collectives import axes_of
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import CLASSICAL
from tensoropt.runtime.support.collectives import BY_IR_NAME, DOMAIN

__all__ = ["TARGET", "TensorrtLowerings", "check_operators"]

TARGET = "tensorrt"

_FOREIGN = ("com.microsoft", CLASSICAL, DOMAIN)
"""Domains of ONNX Runtime; nodes of other domains may be plugins."""
_FUSED = "onnx.com.microsoft.FusedMatMul"
_ELEMENTS = ("FLOAT", "FLOAT16", "BFLOAT16", "INT64", "INT32", "INT8", "UINT8")
"""Element types that both TensorRT and NCCL support."""
_MATRIX = 2


class TensorrtLowerings(RankLowerings):
    """Lowers the operations that differ between ranks, for one rank on TensorRT."""

    def table(self) -> dict[str, Lowering]:
        """Return the lowering of each operation name."""
        return {**super().table(), _FUSED: self._fused}

    def _collective(self, emitter: Emitter, op: ir.Operation) -> None:
        traits = BY_IR_NAME[op.name]
        lowerings: Mapping[str, Callable[[Emitter, ir.Operation], None]] = {
            "all_reduce": self._put,
            "all_gather": self._put,
            "reduce_scatter": self._put,
            "all_to_all": self._all_to_all,
            "collective_permute": self._permute,
        }
        if traits.name not in lowerings:
            raise _no_operator(name_of(op, traits.op_type), f"{DOMAIN}.{traits.op_type}")
        lowerings[traits.name](emitter, op)

    def _put(self, emitter: Emitter, op: ir.Operation) -> None:
        """Emit a collective along a dimension, or none, that TensorRT has by this name."""
        settings = settings_of(op)
        dim, reduction = settings.get("dim", 0), settings.get("reduction", "none")
        name, value = name_of(op, "DistCollective"), emitter.name(op.operands[0])
        turn = _swap(ir.RankedTensorType(op.operands[0].type).rank, 0, dim)
        if dim:
            (value,) = emitter.node("Transpose", [value], name=f"{name}.before", perm=turn)
        results = emitter.results(op, name)
        kind = BY_IR_NAME[op.name].name
        made = self._collective_node(
            emitter, op, kind, value, name, None if dim else results, reduction
        )
        if dim:
            emitter.node("Transpose", made, name=f"{name}.after", results=results, perm=turn)

    def _collective_node(
        self,
        emitter: Emitter,
        op: ir.Operation,
        kind: str,
        value: str,
        name: str,
        results: Sequence[str] | None,
        reduction: str = "none",
    ) -> list[str]:
        """Emit the node; a group of all ranks is not listed."""
        _check_type(op)
        group = list(self.mesh.group(self.rank, axes_of(op)))
        every = list(range(self.mesh.size))
        listed: dict[str, Any] = {} if group == every else {"groups": group}
        return emitter.node(
            "DistCollective",
            [value],
            name=name,
            results=results,
            collective_operation=kind,
            reduce_op=reduction,
            root=-1,
            nb_rank=len(group),
            group_size=len(listed.get("groups", ())),
            **listed,
        )

    def _all_to_all(self, emitter: Emitter, op: ir.Operation) -> None:
        """Emit an exchange of blocks along a new first dimension.

        Dimension ``split`` is reshaped to (blocks, size of a block); the received blocks are joined
        along ``concat``.
        """
        split, concat = (settings_of(op)[f"{end}_dim"] for end in ("split", "concat"))
        name, count = name_of(op, "DistCollective"), self.mesh.extent(axes_of(op))
        shape = _static_shape(op)
        cut = [*shape[:split], count, shape[split] // count, *shape[split + 1 :]]
        rank = len(shape)
        to_front = [split, *(dim for dim in range(rank + 1) if dim != split)]
        back = [*range(1, concat + 1), 0, *range(concat + 1, rank + 1)]
        joined = [*shape]
        joined[split] //= count
        joined[concat] *= count

        value = _reshape(emitter, emitter.name(op.operands[0]), cut, f"{name}.cut")
        (value,) = emitter.node("Transpose", [value], name=f"{name}.before", perm=to_front)
        (value,) = self._collective_node(emitter, op, "all_to_all", value, name, None)
        (value,) = emitter.node("Transpose", [value], name=f"{name}.after", perm=back)
        _reshape(emitter, value, joined, f"{name}.joined", emitter.results(op, name))

    def _permute(self, emitter: Emitter, op: ir.Operation) -> None:
        """Emit an all-gather and a slice of one part: TensorRT has no collective for less."""
        name, value = name_of(op, "DistCollective"), emitter.name(op.operands[0])
        (parts,) = self._collective_node(emitter, op, "all_gather", value, name, None)
        size = _static_shape(op)[0]
        start = size * settings_of(op)["sources"][self.mesh.linear(self.rank, axes_of(op))]
        bounds = {"starts": start, "ends": start + size, "axes": 0}
        taken = [
            emitter.constant(f"{name}_{k}", np.array([n], np.int64)) for k, n in bounds.items()
        ]
        results = emitter.results(op, name)
        emitter.node("Slice", [parts, *taken], name=f"{name}.own", results=results)

    def _fused(self, emitter: Emitter, op: ir.Operation) -> None:
        """Emit a product with transposed operands, which the compiler fused, as stock operators."""
        name = onnx_ops.node_name(op) or "FusedMatMul"
        if onnx_ops.attribute(op, "transBatchA", 0) or onnx_ops.attribute(op, "transBatchB", 0):
            raise _no_operator(name, "com.microsoft.FusedMatMul")
        operands = [
            self._transposed(emitter, op, number, f"{name}.{turn}")
            for number, turn in enumerate(("transA", "transB"))
        ]
        scale = float(onnx_ops.attribute(op, "alpha", 1.0))
        results = emitter.results(op, name)
        made = emitter.node("MatMul", operands, name=name, results=results if scale == 1 else None)
        if scale != 1:
            element = element_of(str(ir.RankedTensorType(op.results[0].type).element_type))
            assert element is not None, "a product is of numbers"
            factor = emitter.constant(f"{name}_alpha", np.array(scale, element.dtype))
            emitter.node("Mul", [*made, factor], name=f"{name}.alpha", results=results)

    @staticmethod
    def _transposed(emitter: Emitter, op: ir.Operation, number: int, name: str) -> str:
        value, turn = emitter.name(op.operands[number]), name.rpartition(".")[2]
        rank = ir.RankedTensorType(op.operands[number].type).rank
        if not onnx_ops.attribute(op, turn, 0) or rank < _MATRIX:
            return value
        return emitter.node("Transpose", [value], name=name, perm=_swap(rank, -2, -1))[0]


def check_operators(module: ir.Module) -> None:
    """Raise UserError for an operator that only ONNX Runtime has."""
    for op in onnx_ops.walk(onnx_ops.function(module)):
        if onnx_ops.is_onnx(op) and op.name != _FUSED:
            domain, name = onnx_ops.split_name(op.name)
            if domain in _FOREIGN:
                raise _no_operator(onnx_ops.node_name(op) or name, f"{domain}.{name}")


def _no_operator(node: str, operator: str) -> UserError:
    return UserError(
        f"--target {TARGET}: node '{node}': expected an operator of ONNX, got: {operator}"
    )


def _check_type(op: ir.Operation) -> None:
    kind = ir.RankedTensorType(op.operands[0].type)
    element = element_of(str(kind.element_type))
    if element is None or element.name not in _ELEMENTS:
        listed = ", ".join(name.lower() for name in _ELEMENTS)
        raise UserError(
            f"--target {TARGET}: '{name_of(op, op.name)}': expected a collective of {listed}, "
            f"got: {kind.element_type}"
        )


def _static_shape(op: ir.Operation) -> list[int]:
    kind = ir.RankedTensorType(op.operands[0].type)
    if any(map(kind.is_dynamic_dim, range(kind.rank))):
        where = f"--target {TARGET}: '{name_of(op, op.name)}'"
        raise UserError(f"{where}: expected sizes that --dim fixes, got: {kind}")
    return [int(size) for size in kind.shape]


def _swap(rank: int, one: int, other: int) -> list[int]:
    order = list(range(rank))
    if rank:
        order[one], order[other] = order[other], order[one]
    return order


def _reshape(
    emitter: Emitter, value: str, shape: Sequence[int], name: str, results: list[str] | None = None
) -> str:
    wanted = emitter.constant(f"{name}_shape", np.array(shape, np.int64))
    return emitter.node("Reshape", [value, wanted], name=name, results=results)[0]

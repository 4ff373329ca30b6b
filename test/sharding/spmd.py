"""Run partitioned code on all ranks in lockstep, in one process: no MPI needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tensoropt.compiler.sharding.proof.onnx_node import Array, node_of, run_node
from tensoropt.dialects import onnx as views
from tensoropt.dialects.elements import dense_to_array, element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import mesh_of
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.mesh_layout import COMBINERS
from tensoropt.runtime.ops import library_path
from tensoropt.runtime.support.collectives import DOMAIN

__all__ = ["run_spmd"]

_OPEN = ir.ShapedType.get_dynamic_size()

Ranks = list[Any]
"""One value per rank: an array, or ``None`` for an omitted value."""


def run_spmd(
    code: ir.Module | ir.Block | Any, inputs: Sequence[Sequence[Array]], mesh: Mesh | None = None
) -> list[list[Array]]:
    """Return the outputs of every rank, given the inputs of every rank.

    ``code`` is a partitioned module (its ``@main``), a function or a block; ``mesh`` defaults to
    the module's ``shard.grid``. Every value is checked against its local type.
    """
    block = _block(code)
    mesh = mesh or mesh_of(block.owner)
    values: dict[ir.Value, Ranks] = {}
    for index, argument in enumerate(block.arguments):
        values[argument] = [own[index] for own in inputs]
        _check_type(argument, values[argument])
    interpreter = _Interpreter(mesh, _versions(block.owner), values)
    returned = interpreter.run(block)
    return [[value[rank] for value in returned] for rank in range(mesh.size)]


def _block(code: Any) -> ir.Block:
    if isinstance(code, ir.Block):
        return code
    function = views.function(code) if isinstance(code, ir.Module) else code.operation
    return function.regions[0].blocks[0]


def _versions(op: Any) -> dict[str, int]:
    scope = op.operation
    while scope.name != "builtin.module":
        scope = scope.parent
    table = ir.DictAttr(scope.attributes["topt.opset"])
    return {("" if e.name == "ai.onnx" else e.name): e.attr.value for e in table}


class _Interpreter:
    """Evaluates the operations of a block, each for all ranks before the next."""

    def __init__(self, mesh: Mesh, versions: dict[str, int], values: dict[ir.Value, Ranks]) -> None:
        self.mesh, self.versions, self.values = mesh, versions, values

    def run(self, block: ir.Block) -> list[Ranks]:
        for view in block:
            op = view.operation
            operands = [self.values[value] for value in op.operands]
            if op.name == "func.return":
                return operands
            for value, ranks in zip(op.results, self._evaluate(op, operands), strict=True):
                _check_type(value, ranks)
                self.values[value] = ranks
        raise AssertionError("the block has no func.return")

    def _evaluate(self, op: ir.Operation, operands: list[Ranks]) -> list[Ranks]:
        if op.name in _COLLECTIVES:
            return [_collective(op, operands, self.mesh)]
        if op.name == views.CONSTANT and "value" in op.attributes:
            return [[dense_to_array(op.attributes["value"])] * self.mesh.size]
        if op.name == views.NO_VALUE:
            return [[None] * self.mesh.size]
        if op.name == "topt.wait":  # the verifier lets nothing else read what is under way
            return [operands[0]]
        if op.name == "topt.axis_constant":
            return [_axis_constant(op, self.mesh)]
        assert views.is_onnx(op), f"unexpected operation in partitioned code: {op.name}"
        return self._onnx(op, operands)

    def _onnx(self, op: ir.Operation, operands: list[Ranks]) -> list[Ranks]:
        """Evaluate per rank; ranks that hold the very same operands share the results."""
        held: dict[tuple[int, ...], list[Array | None]] = {}
        node, per_rank = node_of(op), []
        for rank in range(self.mesh.size):
            own = [ranks[rank] for ranks in operands]
            key = tuple(id(value) for value in own)
            if key not in held:
                held[key] = run_node(node, self.versions, own, _libraries(node.domain))
            per_rank.append(held[key])
        return [list(ranks) for ranks in zip(*per_rank, strict=True)]


def _libraries(domain: str) -> tuple[str, ...]:
    """Return the libraries with the operators of a domain."""
    return (str(library_path()),) if domain == DOMAIN else ()


def _axis_constant(op: ir.Operation, mesh: Mesh) -> Ranks:
    values, axes = dense_to_array(op.attributes["values"]), tuple(op.attributes["axes"])
    assert len(values) == mesh.extent(axes), f"axis_constant over {axes} holds {len(values)} values"
    parts = [np.ascontiguousarray(part).reshape(values.shape[1:]) for part in values]
    return [parts[mesh.linear(rank, axes)] for rank in range(mesh.size)]


def _collective(op: ir.Operation, operands: list[Ranks], mesh: Mesh) -> Ranks:
    axes = tuple(op.attributes["grid_axes"])
    assert len(axes) == len({*axes}), f"{op.name}: grid_axes must differ, got: {axes}"
    results: Ranks = [None] * mesh.size
    for rank in range(mesh.size):
        if results[rank] is None:
            group = mesh.group(rank, axes)
            held = ([ranks[member] for member in group] for ranks in operands)
            parts = _COLLECTIVES[op.name](op, *held)
            for member, part in zip(group, parts, strict=True):
                results[member] = part
    return results


def _all_reduce(op: ir.Operation, group: list[Array]) -> list[Array]:
    whole = np.asarray(reduce(COMBINERS[_reduction(op)], group))
    return [whole] * len(group)


def _all_gather(op: ir.Operation, group: list[Array]) -> list[Array]:
    whole = np.concatenate(group, axis=op.attributes["gather_axis"].value)
    return [whole] * len(group)


def _reduce_scatter(op: ir.Operation, group: list[Array]) -> list[Array]:
    whole = reduce(COMBINERS[_reduction(op)], group)
    return _split(whole, len(group), op.attributes["scatter_dim"].value)


def _all_to_all(op: ir.Operation, group: list[Array]) -> list[Array]:
    sent = [_split(part, len(group), op.attributes["split_axis"].value) for part in group]
    concat_axis = op.attributes["concat_axis"].value
    return [
        np.concatenate([parts[i] for parts in sent], axis=concat_axis) for i in range(len(group))
    ]


def _all_slice(op: ir.Operation, group: list[Array]) -> list[Array]:
    parts = [_split(part, len(group), op.attributes["slice_axis"].value) for part in group]
    return [own[i] for i, own in enumerate(parts)]


def _collective_permute(op: ir.Operation, group: list[Array]) -> list[Array]:
    return [group[source] for source in op.attributes["sources"]]


def _all_to_all_rows(op: ir.Operation, group: list[Array], rows: list[Array]) -> list[Array]:
    for part, own in zip(group, rows, strict=True):
        assert own[:, 0].sum() == len(part), f"{op.name}: sends {own[:, 0]} of {len(part)} rows"
    sent = [np.split(x, np.cumsum(own[:, 0])[:-1]) for x, own in zip(group, rows, strict=True)]
    come = [[parts[i] for parts in sent] for i in range(len(group))]
    for parts, own in zip(come, rows, strict=True):
        assert [len(part) for part in parts] == list(own[:, 1]), f"{op.name}: other rows come"
    return [np.concatenate(parts) for parts in come]


_COLLECTIVES: dict[str, Callable[..., list[Array]]] = {
    "shard.all_reduce": _all_reduce,
    "shard.all_gather": _all_gather,
    "shard.reduce_scatter": _reduce_scatter,
    "shard.all_to_all": _all_to_all,
    "shard.all_slice": _all_slice,
    "topt.all_to_all_rows": _all_to_all_rows,
    "topt.collective_permute": _collective_permute,
}


def _split(array: Array, pieces: int, dim: int) -> list[Array]:
    assert array.shape[dim] % pieces == 0, f"{array.shape} is not cut in {pieces} along {dim}"
    return [np.ascontiguousarray(part) for part in np.split(array, pieces, axis=dim)]


def _reduction(op: ir.Operation) -> str:
    return str(op.attributes["reduction"]).removeprefix("#shard<partial ").removesuffix(">")


def _check_type(value: ir.Value, ranks: Ranks) -> None:
    """Fail unless every rank holds what the type of ``value`` says."""
    kind = value.type
    if isinstance(kind, ir.NoneType):
        assert all(held is None for held in ranks), f"a rank holds an array for {value}"
    elif isinstance(kind, ir.RankedTensorType):
        element, sizes = element_of(str(kind.element_type)), list(kind.shape)
        for rank, held in enumerate(ranks):
            assert element and held.dtype == element.dtype, (
                f"rank {rank}, {value}: got: {held.dtype}"
            )
            assert _agree(held.shape, sizes), (
                f"rank {rank}, {value}: expected {kind}, got: {held.shape}"
            )


def _agree(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    """Say whether the shape of an array has the sizes of a type, of which some may be open."""
    pairs = zip(shape, sizes, strict=False)
    return len(shape) == len(sizes) and all(size in (n, _OPEN) for n, size in pairs)

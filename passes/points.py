"""The frontier in a module, as one `topt.point` per point at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensoropt.compiler.program.evaluate import Cost
from tensoropt.compiler.search.frontier.points import Point, micro_batches_of, recompute_of
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import POINT, PointOp, mesh_of
from tensoropt.dialects.topt.keys import DEVICE, LAYOUT, STRATEGY

__all__ = ["WrittenPoint", "fingerprint", "read_points", "write_points"]

_CHOSEN, _ABOVE_CAPACITY = "chosen", "above_capacity"
_PROCESS, _HIDDEN = "process_bytes", "hidden_s"
_RECOMPUTE, _MICRO_BATCHES = "recompute", "micro_batches"


@dataclass(frozen=True)
class WrittenPoint(Cost):
    """A point of the frontier, read from a module."""

    index: int
    mesh: tuple[int, ...]
    recompute: str | None
    micro_batches: int | None
    process_bytes: int
    chosen: bool
    is_above_capacity: bool


def write_points(module: ir.Module, points: Sequence[Point], chosen: int) -> None:
    """Replace the points in ``module`` by ``points`` and mark the point of index ``chosen``."""
    for op in _ops(module):
        op.erase()
    i64, f64 = ir.IntegerType.get_signless(64), ir.F64Type.get()
    with ir.InsertionPoint(module.body):
        for point in points:
            made = PointOp(
                mesh=ir.DenseI64ArrayAttr.get(list(point.mesh)),
                compute_s=ir.FloatAttr.get(f64, point.compute_s),
                communication_s=ir.FloatAttr.get(f64, point.communication_s),
                static_bytes=ir.IntegerAttr.get(i64, point.static_bytes),
                transient_bytes=ir.IntegerAttr.get(i64, point.transient_bytes),
            ).operation
            recompute = recompute_of(point)
            if recompute is not None:
                made.attributes[_RECOMPUTE] = ir.StringAttr.get(recompute)
            batches = micro_batches_of(point)
            if batches is not None:
                made.attributes[_MICRO_BATCHES] = ir.IntegerAttr.get(i64, batches)
            if point.hidden_s:
                made.attributes[_HIDDEN] = ir.FloatAttr.get(f64, point.hidden_s)
            if point.process_bytes != point.memory_bytes:
                made.attributes[_PROCESS] = ir.IntegerAttr.get(i64, point.process_bytes)
            if point.is_above_capacity:
                made.attributes[_ABOVE_CAPACITY] = ir.UnitAttr.get()
            if point.index == chosen:
                made.attributes[_CHOSEN] = ir.UnitAttr.get()


def read_points(module: ir.Module) -> list[WrittenPoint]:
    """Return the frontier stored in ``module``."""
    return [_read(index, op.attributes) for index, op in enumerate(_ops(module))]


def fingerprint(module: ir.Module) -> str:
    """Return a digest of the mesh, device, types, layouts and strategies of a module.

    Reshards are ignored. A digest other than the search's means that the strategies were edited.
    """
    digest = hashlib.sha256()
    for text in _texts_of_layouts(module):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]


def _texts_of_layouts(module: ir.Module) -> Iterator[str]:
    main = onnx.function(module)
    texts: dict[ir.Attribute, str] = {}  # many operations share a strategy
    yield str(mesh_of(module.operation))
    yield str(DEVICE.get(module.operation.attributes))
    yield str(main.attributes["function_type"])
    for side in ("arg_attrs", "res_attrs"):
        for own in onnx.carried(main, side):
            yield str(own[LAYOUT.name]) if LAYOUT.on(own) else ""
    for op in main.regions[0].blocks[0]:
        attributes = op.operation.attributes
        if STRATEGY.on(attributes):
            strategy = attributes[STRATEGY.name]
            if strategy not in texts:
                texts[strategy] = str(strategy)
            yield op.operation.name
            yield texts[strategy]


def _ops(module: ir.Module) -> list[ir.Operation]:
    return [op.operation for op in module.body if op.operation.name == POINT]


def _read(index: int, attributes: ir.OpAttributeMap) -> WrittenPoint:
    static_bytes = ir.IntegerAttr(attributes["static_bytes"]).value
    transient_bytes = ir.IntegerAttr(attributes["transient_bytes"]).value
    tensors = static_bytes + transient_bytes
    return WrittenPoint(
        ir.FloatAttr(attributes["compute_s"]).value,
        ir.FloatAttr(attributes["communication_s"]).value,
        static_bytes,
        transient_bytes,
        index,
        tuple(ir.DenseI64ArrayAttr(attributes["mesh"])),
        ir.StringAttr(attributes[_RECOMPUTE]).value if _RECOMPUTE in attributes else None,
        ir.IntegerAttr(attributes[_MICRO_BATCHES]).value if _MICRO_BATCHES in attributes else None,
        ir.IntegerAttr(attributes[_PROCESS]).value if _PROCESS in attributes else tensors,
        _CHOSEN in attributes,
        _ABOVE_CAPACITY in attributes,
        hidden_s=ir.FloatAttr(attributes[_HIDDEN]).value if _HIDDEN in attributes else 0.0,
    )

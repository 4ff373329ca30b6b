"""Access to the results of the search in a module, with errors that point at the op."""

from __future__ import annotations

from functools import lru_cache

from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.layout.execution import AMPLE, GRAPH
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys, mesh_of
from tensoropt.passes.base import PassError
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["device_of", "resharder_of", "signature_layouts", "strategy_of"]


def strategy_of(op: ir.Operation) -> tuple[list[Layout], list[Layout]]:
    """Return the layouts of operands and of results in the `topt.strategy` of ``op``.

    Raises PassError if it is missing or malformed.
    """
    where = f"'{op.name}' op"
    if not keys.STRATEGY.on(op.attributes):
        raise PassError(f"{where} has no topt.strategy, run search-strategies first", op.location)
    try:
        return keys.STRATEGY.of(op.attributes)
    except UserError as error:
        raise PassError(f"{where} topt.strategy: {error}", op.location) from None


def signature_layouts(function: ir.Operation, key: str) -> list[Layout]:
    """Return the `topt.layout` of every argument (`arg_attrs`) or result (`res_attrs`).

    Raises PassError if one is missing.
    """
    kind = onnx.signature(function)
    count = len(kind.inputs if key == "arg_attrs" else kind.results)
    dictionaries = onnx.signature_attributes(function, key, count)
    for number, attributes in enumerate(dictionaries):
        if not keys.LAYOUT.on(attributes):
            side = "argument" if key == "arg_attrs" else "result"
            text = f"'{function.name}' op {side} {number} has no topt.layout"
            raise PassError(f"{text}, run search-strategies first", function.location)
    return [keys.LAYOUT.of(attributes) for attributes in dictionaries]


def resharder_of(module: ir.Module, function: ir.Operation) -> Resharder:
    """Return the resharder for the mesh and the device of the search; raises PassError."""
    if not keys.DEVICE.on(module.operation.attributes):
        text = f"'{function.name}' op the module has no topt.device, run search-strategies first"
        raise PassError(text, function.location)
    return _resharder(mesh_of(module.operation), device_of(module))


def device_of(module: ir.Module) -> Device:
    """Return the device of the search, with the settings of the module applied."""
    attributes = module.operation.attributes
    device, overlap = load_device(keys.DEVICE.of(attributes)), keys.OVERLAP.get(attributes)
    if keys.LAUNCH.get(attributes) == GRAPH:
        device = device.with_cuda_graphs()
    if overlap == AMPLE:
        return device.with_ample_memory()
    return device.without_overlap() if overlap == "off" else device


@lru_cache(maxsize=4)
def _resharder(mesh: Mesh, device: Device) -> Resharder:
    """Return a cached resharder: building its graphs takes half the time of a small model."""
    return Resharder(mesh, device)

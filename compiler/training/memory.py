"""The memory that a training step retains between steps, by kind of state."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.compiler.cost.memory import RankMemory
from tensoropt.dialects import onnx
from tensoropt.dialects.elements import type_bytes
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["StaticParts", "static_parts"]


@dataclass(frozen=True)
class StaticParts:
    """Bytes on one rank; the fields add up to the static memory of a step."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    buffers_bytes: int
    constants_bytes: int


def static_parts(module: ir.Module, memory: RankMemory) -> StaticParts:
    """Split the static bytes in ``memory``, the memory of one rank of a partitioned step."""
    main = onnx.function(module)
    sizes = {"parameter": 0, "gradient": 0, "buffer": 0, "optimizer": 0}
    for value, attributes in onnx.arguments(main):
        state = keys.STATE.get(attributes)
        if state is not None and state != "gradient":
            sizes[state if state in sizes else "optimizer"] += type_bytes(value.type)
    for op in main.regions[0].blocks[0]:
        if keys.GRADIENT_OF.on(op.attributes):
            sizes["gradient"] += type_bytes(op.operation.results[0].type)
    return StaticParts(
        sizes["parameter"],
        sizes["gradient"],
        sizes["optimizer"],
        sizes["buffer"],
        memory.static_bytes - sum(sizes.values()),
    )

"""Operators that draw random numbers: replicated, with one seed for all ranks."""

from __future__ import annotations

import zlib
from dataclasses import replace

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import replicated_rule, sharding_rule
from tensoropt.dialects.build import int_attr
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import is_random
from tensoropt.runtime.support.drawing import DROPOUT, RANDOM

__all__ = ["give_seed", "seeded_rule"]

_EXACT_IN_FLOAT32 = 2**24
_DROPOUT, _DROPOUT_HAS_SEEDS = f"onnx.{DROPOUT}", 12


@sharding_rule(*RANDOM)
def seeded_rule(info: OpInfo) -> Rule:
    """Return the replicated rule, which adds a seed if the model has none.

    Without a seed, every rank would draw different numbers, and replicas would differ.
    """
    return replace(replicated_rule(info), localize=_seed)


def _seed(local: LocalOp) -> list[ir.Value]:
    if "seed" in local.op.attributes:
        return local.clone()
    return local.clone(attributes={"seed": _attribute(local.op)})


def give_seed(op: ir.Operation, version: int) -> None:
    """Add the missing seed to an op in a control-flow body, for standard opset ``version``."""
    draws = is_random(op) or (op.name == _DROPOUT and version >= _DROPOUT_HAS_SEEDS)
    if draws and "seed" not in op.attributes:
        op.attributes["seed"] = _attribute(op)


def _attribute(op: ir.Operation) -> ir.Attribute:
    seed = zlib.crc32(str(op.location).encode()) % _EXACT_IN_FLOAT32
    return int_attr(seed) if op.name == _DROPOUT else ir.FloatAttr.get(ir.F32Type.get(), seed)

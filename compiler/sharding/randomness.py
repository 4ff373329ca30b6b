"""Operators that draw random numbers: replicated, with one seed for all ranks."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

from tensoropt.compiler.sharding.local import LocalOp
from tensoropt.compiler.sharding.op_info import OpInfo
from tensoropt.compiler.sharding.registry import replicated_rule, sharding_rule
from tensoropt.compiler.sharding.rule import Rule
from tensoropt.dialects.build import int_attr
from tensoropt.dialects.mlir import ir

__all__ = ["seeded_rule"]

_EXACT_IN_FLOAT32 = 2**24


@sharding_rule(
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
)
def seeded_rule(info: OpInfo) -> Rule:
    """Return the replicated rule, with a seed where the model has none.

    Without one every rank would draw numbers of its own, and the ranks' copies would differ.
    """
    return replace(replicated_rule(info), localize=_seed)


def _seed(local: LocalOp) -> list[Any]:
    if "seed" in local.op.attributes:
        return local.clone()
    seed = zlib.crc32(str(local.op.location).encode()) % _EXACT_IN_FLOAT32
    return local.clone(attributes={"seed": _attribute(local.info.name, seed)})


def _attribute(name: str, seed: int) -> ir.Attribute:
    if name == "Dropout":
        return int_attr(seed)
    return ir.FloatAttr.get(ir.F32Type.get(), float(seed))

"""Registry of sharding rules by operator name; an operator without a rule runs replicated."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import cache

from tensoropt.compiler.layout.rule import Factor, Rule
from tensoropt.compiler.sharding.rule.op_info import MisfitError, OpInfo

__all__ = ["RuleMaker", "registered", "replicated_rule", "rule_for", "sharding_rule"]

RuleMaker = Callable[[OpInfo], Rule | None]

_FAMILIES = (
    "attention",
    "blocked_attention",
    "classical",
    "constants",
    "convolution",
    "einsum",
    "elementwise",
    "expert_gradients",
    "experts",
    "fused_attention",
    "indexing",
    "layer_normalization",
    "linear_algebra",
    "linear_attention",
    "losses",
    "movement",
    "normalization",
    "ordering",
    "pooling",
    "quantization",
    "quantized_products",
    "randomness",
    "recurrent",
    "reduction",
    "repetition",
    "reshaping",
    "resizing",
    "rotary",
    "runtime_attention",
    "sampling",
    "scattering",
    "searching",
    "softmax",
    "transforms",
)
_MAKERS: dict[str, RuleMaker] = {}


def sharding_rule(*names: str) -> Callable[[RuleMaker], RuleMaker]:
    """Register the decorated function as the rule maker of the operators ``names``.

    A rule maker returns ``None`` to decline an op, which then runs replicated. Its docstring lists
    the dimensions that can be split.
    """

    def register(maker: RuleMaker) -> RuleMaker:
        for name in names:
            assert name not in _MAKERS, f"{name} has a rule already"
            _MAKERS[name] = maker
        return maker

    return register


def registered() -> list[str]:
    """Return the sorted names of all operators with a rule."""
    _load_families()
    return sorted(_MAKERS)


@cache
def rule_for(info: OpInfo) -> Rule:
    """Return the rule of the op; the replicated rule if it has none or a rank is unknown.

    Raises MisfitError if the operands violate the ONNX specification.
    """
    _load_families()
    maker = _MAKERS.get(info.name)
    try:
        rule = maker(info) if maker is not None and info.is_ranked else None
    except IndexError:  # an operand has fewer dimensions than the rule reads
        raise MisfitError(info) from None
    return replicated_rule(info) if rule is None else rule


def replicated_rule(info: OpInfo) -> Rule:
    """Return the rule with a single strategy: run the whole op on every rank."""
    work = math.prod(r.elements for r in info.results[:1] if r is not None)
    operands = tuple(() if o is None else (None,) * o.rank for o in info.operands)
    results = tuple(() if r is None else (None,) * r.rank for r in info.results)
    return Rule((Factor(work, can_split=False),), operands, results)


@cache
def _load_families() -> None:
    for family in _FAMILIES:
        importlib.import_module(f"tensoropt.compiler.sharding.ops.{family}")

"""Alternative builds of one training step; the search picks one.

A module has one function for each searched number of micro-batches; the first is `@main`. A
function marked `topt.recompute` has no recomputation yet: the search derives the graph of each
policy from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.compiler.training.cut import bytecode, copy_of
from tensoropt.compiler.training.spec import AUTO, RECOMPUTE
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = [
    "INFERENCE",
    "Alternative",
    "keep_step",
    "policies_of",
    "recompute_of",
    "steps",
    "unite_steps",
]

_MAIN = "main"


@dataclass(frozen=True)
class Alternative:
    """An alternative build of a step: its recompute policy and its number of micro-batches."""

    recompute: str
    micro_batches: int = 1

    def __str__(self) -> str:
        several = f", {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
        return f"{self.recompute}{several}"


INFERENCE = Alternative("")
"""The key of a module that is not a training step."""


def steps(module: ir.Module) -> dict[int, ir.Operation]:
    """Return the functions of ``module``, `@main` first, by their number of micro-batches."""
    if not keys.TRAINING.on(module.operation.attributes):
        return {1: onnx.function(module)}
    functions = [op.operation for op in module.body if op.operation.name == "func.func"]
    return {keys.MICRO_BATCHES.get(each.attributes) or 1: each for each in functions}


def policies_of(step: ir.Operation) -> Sequence[str]:
    """Return the recompute policies to derive from the function ``step``.

    There are none if the function has its recomputation already, or is not a training step.
    """
    policy = keys.RECOMPUTE.get(step.attributes)
    return () if policy is None else RECOMPUTE if policy == AUTO else (policy,)


def recompute_of(module: ir.Module) -> str:
    """Return the recompute policy of a step that has its recomputation; "" for inference."""
    training = keys.TRAINING.get(module.operation.attributes)
    return "" if training is None else str(training.get("recompute", "none"))


def unite_steps(modules: Sequence[ir.Module]) -> ir.Module:
    """Return a module with the steps of all ``modules``, which are left unchanged.

    Each module has another number of micro-batches. `@main` is the `@main` of the first.
    """
    made = copy_of(modules[0])
    attributes = made.operation.attributes
    with made.context, ir.Location.unknown():
        for other in modules[1:]:
            module = ir.Module.parse(bytecode(other), made.context)
            for micro_batches, step in steps(module).items():
                made.body.append(step)
                step.attributes["sym_name"] = ir.StringAttr.get(f"{_MAIN}.{micro_batches}")
            opsets = keys.OPSET.of(module.operation.attributes)
            keys.OPSET.set(attributes, {**keys.OPSET.of(attributes), **opsets})
    return made


def keep_step(module: ir.Module, alternative: Alternative) -> None:
    """Erase all steps except the step of ``alternative``, which becomes `@main`.

    Records the alternative; :func:`~tensoropt.passes.recompute.write_clones` writes its clones.
    """
    if alternative == INFERENCE:
        return
    functions = steps(module)
    main = functions.pop(alternative.micro_batches)
    for other in functions.values():
        other.erase()
    with module.context, ir.Location.unknown():
        main.attributes["sym_name"] = ir.StringAttr.get(_MAIN)
        keys.RECOMPUTE.remove(main.attributes)
        attributes = module.operation.attributes
        training = {
            **keys.TRAINING.of(attributes),
            "recompute": alternative.recompute,
            "micro_batches": alternative.micro_batches,
        }
        keys.TRAINING.set(attributes, training)

"""The ways to build one training step, side by side in a module until the search takes one.

The first is `@main`; each function says what it computes anew in its backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import OPSET, RECOMPUTE, TRAINING

__all__ = ["alternatives", "keep_alternative", "put_alternatives"]

_MAIN = "main"


def alternatives(module: ir.Module) -> dict[str, ir.Operation]:
    """Return the functions of ``module`` by what they compute anew.

    The one of a module that is no training step has an empty text.
    """
    main = onnx.function(module)
    training = TRAINING.get(module.operation.attributes)
    if training is None:
        return {"": main}
    functions = [op.operation for op in module.body if op.operation.name == "func.func"]
    marked = {RECOMPUTE.of(f.attributes): f for f in functions if RECOMPUTE.on(f.attributes)}
    return marked or {str(training.get("recompute", "none")): main}


def put_alternatives(module: ir.Module, steps: Mapping[str, ir.Module]) -> None:
    """Put the `@main` of each of ``steps`` in the place of that of ``module``; steps are spent.

    Of several, all but the first get another name, and each says which way it is.
    """
    onnx.function(module).erase()
    attributes = module.operation.attributes
    for number, (way, step) in enumerate(steps.items()):
        main = onnx.function(step)
        module.body.append(main)
        if len(steps) > 1:
            RECOMPUTE.set(main.attributes, way)
        if number:
            main.attributes["sym_name"] = ir.StringAttr.get(f"{_MAIN}.{way}")
        OPSET.set(attributes, {**OPSET.of(attributes), **OPSET.of(step.operation.attributes)})


def keep_alternative(module: ir.Module, way: str) -> None:
    """Leave of all alternatives the one that computes ``way`` anew, as `@main`."""
    functions = alternatives(module)
    for other in functions.keys() - {way}:
        functions[other].erase()
    with module.context, ir.Location.unknown():
        main, attributes = functions[way].attributes, module.operation.attributes
        main["sym_name"] = ir.StringAttr.get(_MAIN)
        RECOMPUTE.remove(main)
        if way:
            TRAINING.set(attributes, {**TRAINING.of(attributes), "recompute": way})

"""The loss of a step, computed from an output of the model and the labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.compiler.training.gradients.losses import cross_entropy
from tensoropt.compiler.training.signature import Signature
from tensoropt.compiler.training.spec import Loss
from tensoropt.dialects.build import Build, element_type, is_float, shape_of, tensor_type
from tensoropt.dialects.elements import ELEMENTS, element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["build_loss"]

_INDICES = ("INT64", "INT32")
_ELEMENTS = {element.name: element for element in ELEMENTS}


def build_loss(make: Build, signature: Signature, loss: Loss) -> ir.Value:
    """Return the scalar loss; the labels become an argument unless an input has their name.

    A narrow output is first widened to float32. "softmax-cross-entropy" is the mean negative log
    probability of the labels; "mse" is the mean squared difference. Raises UserError if the output
    does not exist or has the wrong shape or type, or if the input named as labels cannot hold them.
    """
    if loss.output not in signature.outputs:
        near = did_you_mean(loss.output, signature.outputs)
        listed = ", ".join(signature.outputs)
        raise UserError(f"--loss {loss}: no output '{loss.output}'{near}; the model has {listed}")
    output = signature.outputs[loss.output]
    if not is_float(output):
        raise _output_error(loss, output, "floating point numbers")
    return _KINDS[loss.kind](make, signature, loss, make.wide(output))


def _output_error(loss: Loss, output: ir.Value, expected: str) -> UserError:
    return UserError(
        f"--loss {loss}: expected output '{loss.output}' to be {expected}, got: {output.type}"
    )


def _output(make: Build, signature: Signature, loss: Loss, output: ir.Value) -> ir.Value:
    shape = shape_of(output)
    if any(size != 1 for size in shape):
        raise _output_error(loss, output, "one number")
    return make.reshape(output, []) if shape else make.unary("Identity", output)


def _softmax_cross_entropy(
    make: Build, signature: Signature, loss: Loss, output: ir.Value
) -> ir.Value:
    shape = shape_of(output)
    if not shape:
        raise _output_error(loss, output, "scores with the classes along the last dimension")
    labels = _labels(signature, loss, shape[:-1], _INDICES)
    signature.mark(labels, keys.CLASSES.item(shape[-1] or 1))
    each, _ = cross_entropy(make, output, labels, -1)
    if len(shape) == 1:
        return make.unary("Identity", each)
    return make.reduce("ReduceMean", each, range(len(shape) - 1), keepdims=False)


def _mse(make: Build, signature: Signature, loss: Loss, output: ir.Value) -> ir.Value:
    shape = shape_of(output)
    element = element_of(str(element_type(signature.outputs[loss.output])))
    assert element is not None
    labels = _labels(signature, loss, shape, (element.name,))
    difference = make.sub(output, make.cast(labels, element_type(output)))
    if not shape:
        return make.mul(difference, difference)
    total = make.reduce("ReduceSumSquare", difference, range(len(shape)), keepdims=False)
    return make.scaled(total, 1.0 / math.prod(size or 1 for size in shape))


def _labels(
    signature: Signature, loss: Loss, shape: Sequence[int | None], elements: Sequence[str]
) -> ir.Value:
    """Return the labels argument; a new argument has the first type of ``elements``."""
    if not loss.labels:
        raise UserError(
            f"--loss {loss}: expected a name for the labels: --loss {loss.kind}:{loss.output},NAME"
        )
    kinds = [tensor_type(shape, _ELEMENTS[name].type()) for name in elements]
    for value in signature.arguments:
        if signature.name_of(value) != loss.labels:
            continue
        where = f"--loss {loss}: input '{loss.labels}'"
        if signature.is_parameter(value):
            raise UserError(
                f"{where} is a weight of the model, expected another name for the labels"
            )
        if value.type not in kinds:
            raise UserError(f"{where} cannot be the labels: expected {kinds[0]}, got: {value.type}")
        return value
    return signature.argument(signature.free_name(loss.labels), kinds[0])


_KINDS = {
    "output": _output,
    "softmax-cross-entropy": _softmax_cross_entropy,
    "mse": _mse,
}

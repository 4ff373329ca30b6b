"""The loss of a step, computed from an output of the model and the labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.compiler.training.gradients.losses import (
    class_weights,
    counted_labels,
    cross_entropy,
    masked,
)
from tensoropt.compiler.training.signature import Signature
from tensoropt.compiler.training.spec import Loss
from tensoropt.dialects.build import Build, element_type, is_float, shape_of, tensor_type
from tensoropt.dialects.elements import ELEMENTS, element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["build_loss"]

_INDICES = ("INT64", "INT32")
_ELEMENTS = {element.name: element for element in ELEMENTS}


_Built = tuple[ir.Value, ir.Value | None]


def build_loss(make: Build, signature: Signature, loss: Loss) -> _Built:
    """Return the scalar loss, and its weight, None if it is 1.

    The labels become an argument unless an input has their name. A narrow output is first widened
    to float32. "mse" is the mean squared difference. "softmax-cross-entropy" is the mean over all
    labels of the negative log probability of a label that counts, times its weight, and of 0 for
    others. The second result is the mean of the weights. The mean over the labels that count is
    the ratio of both, each summed over the batches of a step. Raises UserError if the output
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


def _output(make: Build, signature: Signature, loss: Loss, output: ir.Value) -> _Built:
    shape = shape_of(output)
    if any(size != 1 for size in shape):
        raise _output_error(loss, output, "one number")
    return make.reshape(output, []) if shape else make.unary("Identity", output), None


def _softmax_cross_entropy(
    make: Build, signature: Signature, loss: Loss, output: ir.Value
) -> _Built:
    shape = shape_of(output)
    if not shape:
        raise _output_error(loss, output, "scores with the classes along the last dimension")
    labels = _labels(signature, loss, shape[:-1], _INDICES)
    signature.mark(labels, keys.CLASSES.item(shape[-1] or 1))
    labels, counted = counted_labels(make, labels, loss.ignore_index)
    each, logarithms = cross_entropy(make, output, labels, -1)
    of_classes, weights = _class_weights(make, loss, output), None
    if of_classes is not None:
        weights = class_weights(make, of_classes, labels)
        each = make.mul(each, weights)
    if loss.label_smoothing:
        each = make.scaled(each, 1.0 - loss.label_smoothing)
        each = make.add(each, _smooth_part(make, loss, logarithms, of_classes))
    each, weights = masked(make, each, weights, counted)
    dims = range(len(shape) - 1)
    if not dims:
        return make.unary("Identity", each), make.unary("Identity", weights)
    mean, weight = (make.reduce("ReduceMean", x, dims, keepdims=False) for x in (each, weights))
    return mean, weight


def _class_weights(make: Build, loss: Loss, output: ir.Value) -> ir.Value | None:
    """Return the weights of the classes, None if all are 1."""
    classes, weights = shape_of(output)[-1], loss.class_weights
    if not weights:
        return None
    if len(weights) != classes:
        raise UserError(
            f"--class-weights: expected {classes} numbers, as '{loss.output}' has {classes} "
            f"classes, got: {len(weights)}"
        )
    return make.constant(make.like(weights, output))


def _smooth_part(
    make: Build, loss: Loss, logarithms: ir.Value, weights: ir.Value | None
) -> ir.Value:
    """Return the part of each label's loss that smoothing spreads over all classes."""
    last = len(shape_of(logarithms)) - 1
    if weights is not None:
        logarithms = make.mul(logarithms, weights)
    total = make.reduce("ReduceSum", logarithms, [last], keepdims=False)
    return make.scaled(total, -loss.label_smoothing / (shape_of(logarithms)[last] or 1))


def _mse(make: Build, signature: Signature, loss: Loss, output: ir.Value) -> _Built:
    shape = shape_of(output)
    element = element_of(str(element_type(signature.outputs[loss.output])))
    assert element is not None
    labels = _labels(signature, loss, shape, (element.name,))
    difference = make.sub(output, make.cast(labels, element_type(output)))
    if not shape:
        return make.mul(difference, difference), None
    total = make.reduce("ReduceSumSquare", difference, range(len(shape)), keepdims=False)
    return make.scaled(total, 1.0 / math.prod(size or 1 for size in shape)), None


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

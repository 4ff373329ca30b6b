"""Losses over classes, built from ops that split along samples, positions and classes.

Only the log probabilities are read for all classes, once forwards and once backwards; everything
else is one number per sample. See Bridle, Probabilistic Interpretation (1990): the gradient of the
cross entropy is softmax minus one-hot.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.training.gradients.registry import (
    Backward,
    ForwardOp,
    Gradients,
    decomposition,
    forward_form,
    gradient,
)
from tensoropt.dialects import onnx
from tensoropt.dialects.build import Build, element_type, int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = ["CROSS_ENTROPY", "class_weights", "counted_labels", "cross_entropy", "masked"]

CROSS_ENTROPY = "tensoropt.CrossEntropy"
"""An operator that exists only until a step has its training form."""

_WEIGHTS = "tensoropt.ClassWeights"
_CLASSES = 1


def cross_entropy(make: Build, scores: ir.Value, labels: ir.Value, axis: int) -> list[ir.Value]:
    """Return the negative log probability of each label, and the log probabilities of all classes.

    ``scores`` has the classes along ``axis``; ``labels`` (int32 or int64, each below the number of
    classes) and the first result have its shape without that dimension.
    """
    axis %= len(shape_of(scores))
    shape = [size for dim, size in enumerate(shape_of(scores)) if dim != axis]
    kinds = [tensor_type(shape, element_type(scores)), scores.type]
    index = make.unsqueeze(labels, [axis])
    return make.onnx_many(CROSS_ENTROPY, [scores, index], kinds, axis=int_attr(axis))


def counted_labels(make: Build, labels: ir.Value, ignored: int) -> tuple[ir.Value, ir.Value]:
    """Return the labels, with class 0 for those that are ``ignored``, and the mask of others."""
    same = make.compare("Equal", labels, make.scalar(ignored, labels))
    counted = make.unary("Not", same)
    return make.where(counted, labels, make.scalar(0, labels)), counted


def class_weights(make: Build, weights: ir.Value, labels: ir.Value) -> ir.Value:
    """Return the weight of the class of each label; ``weights`` have no gradient."""
    kind = tensor_type(shape_of(labels), element_type(weights))
    return make.onnx(_WEIGHTS, [weights, labels], kind)


def masked(
    make: Build, loss: ir.Value, weights: ir.Value | None, counted: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return the loss and the weight (None: 1) of each sample, both 0 unless it is ``counted``."""
    loss = make.where(counted, loss, make.scalar(0.0, loss))
    if weights is None:
        return loss, make.cast(counted, element_type(loss))
    return loss, make.where(counted, weights, make.scalar(0.0, weights))


@forward_form(CROSS_ENTROPY)
def _cross_entropy_form(f: ForwardOp) -> Sequence[ir.Value | None]:
    make, (scores, index), axis = f.make, f.operands, int(f.info.attribute("axis"))
    logarithms = make.unary("LogSoftmax", scores, axis=int_attr(axis))
    f.saved["logarithms"] = logarithms
    return [_minus_picked(make, logarithms, index, axis), logarithms]


def _minus_picked(make: Build, logarithms: ir.Value, index: ir.Value, axis: int) -> ir.Value:
    kind = tensor_type(shape_of(index), element_type(logarithms))
    picked = make.onnx("GatherElements", [logarithms, index], kind, axis=int_attr(axis))
    return make.unary("Neg", make.squeeze(picked, [axis]))


@gradient(CROSS_ENTROPY)
def _cross_entropy_gradient(b: Backward) -> Gradients:
    """dX = softmax(X) (dL - sum of dZ) + dZ - dL at the labels, Z the logarithms."""
    make, axis = b.make, int(b.info.attribute("axis"))
    of_loss, of_logarithms = b.gradient(0), b.gradient(1)
    factor = None if of_loss is None else make.unsqueeze(of_loss, [axis])
    if of_logarithms is not None:
        total = make.reduce("ReduceSum", of_logarithms, [axis])
        factor = make.unary("Neg", total) if factor is None else make.sub(factor, total)
    assert factor is not None, "neither result has a gradient"
    dx = make.mul(make.unary("Exp", b.saved("logarithms")), factor)
    if of_logarithms is not None:
        dx = make.add(dx, of_logarithms)
    if of_loss is None:
        return [dx, None]
    minus = make.unsqueeze(make.unary("Neg", of_loss), [axis])
    operands = [dx, b.operand(1), minus]
    how = ir.StringAttr.get("add")
    return [
        make.onnx("ScatterElements", operands, dx.type, axis=int_attr(axis), reduction=how),
        None,
    ]


@decomposition("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return the loss, and the log probabilities of all classes if they are a result."""
    labels, counted = _labels(f)
    loss, logarithms = cross_entropy(f.make, f.operands[0], labels, _CLASSES)
    found = [_reduce(f, loss, labels, counted), logarithms]
    return found[: len(f.op.results)]


@decomposition("NegativeLogLikelihoodLoss")
def negative_log_likelihood(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return the negative log probabilities at the labels, weighted and reduced."""
    labels, counted = _labels(f)
    index = f.make.unsqueeze(labels, [_CLASSES])
    loss = _minus_picked(f.make, f.operands[0], index, _CLASSES)
    return [_reduce(f, loss, labels, counted)]


def _labels(f: ForwardOp) -> tuple[ir.Value, ir.Value | None]:
    """Return the labels, with class 0 for ignored ones, and the mask of labels not ignored.

    The mask is ``None`` if no label can be ignored.
    """
    labels, ignored = f.operands[1], f.info.attribute("ignore_index")
    return (labels, None) if ignored is None else counted_labels(f.make, labels, int(ignored))


def _reduce(f: ForwardOp, loss: ir.Value, labels: ir.Value, counted: ir.Value | None) -> ir.Value:
    """Return the weighted losses, summed or averaged over their weights if requested."""
    make, how, weights = f.make, str(f.info.attribute("reduction", "mean")), None
    if len(f.operands) > 2 and not onnx.is_no_value(f.operands[2]):
        weights = class_weights(make, f.operands[2], labels)
        loss = make.mul(loss, weights)
    if counted is not None:
        loss, weights = masked(make, loss, weights, counted)
    dims = range(len(shape_of(loss)))
    if how == "none":
        return loss
    if how == "mean" and weights is None:
        return make.reduce("ReduceMean", loss, dims, keepdims=False)
    total = make.reduce("ReduceSum", loss, dims, keepdims=False)
    if how == "sum" or weights is None:
        return total
    return make.div(total, make.reduce("ReduceSum", weights, dims, keepdims=False))


@forward_form(_WEIGHTS)
def _class_weights(f: ForwardOp) -> Sequence[ir.Value | None]:
    return [f.make.onnx("Gather", f.operands, f.op.results[0].type, axis=int_attr(0))]


@gradient(_WEIGHTS)
def _class_weights_gradient(b: Backward) -> Gradients:
    """No gradient: class weights are constants, even if they are weights of the model."""
    return b.first()

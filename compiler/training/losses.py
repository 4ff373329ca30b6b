"""The loss of a step, from an output of the model and the labels."""

from __future__ import annotations

from typing import Any

from tensoropt.compiler.errors import UserError, did_you_mean
from tensoropt.compiler.training.signature import Signature
from tensoropt.compiler.training.spec import Loss
from tensoropt.dialects.build import Build, shape_of

__all__ = ["build_loss"]


def build_loss(make: Build, signature: Signature, loss: Loss) -> Any:
    """Return the loss, a scalar; labels become an argument, unless an input has their name."""
    if loss.output not in signature.outputs:
        near = did_you_mean(loss.output, signature.outputs)
        held = ", ".join(signature.outputs)
        raise UserError(f"--loss: no output '{loss.output}'{near}; the model has {held}")
    output = signature.outputs[loss.output]
    if loss.kind == "output":
        return _scalar(make, output, loss)
    raise UserError(f"--loss: unknown loss '{loss.kind}'")


def _scalar(make: Build, output: Any, loss: Loss) -> Any:
    shape = shape_of(output)
    if any(size != 1 for size in shape):
        raise UserError(
            f"--loss output:{loss.output}: expected an output of one number, got: {output.type}"
        )
    return make.reshape(output, []) if shape else output

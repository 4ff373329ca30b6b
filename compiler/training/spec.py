"""What a person asks of training: the loss, the optimizer and how a step is cut and rounded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["LOSSES", "OPTIMIZERS", "PRECISIONS", "RECOMPUTE", "Loss", "Optimizer", "TrainingSpec"]

LOSSES = ("output", "softmax-cross-entropy", "mse")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")
PRECISIONS = ("float32", "float16", "bfloat16")
RECOMPUTE = ("none", "light", "half", "blocks")


@dataclass(frozen=True)
class Loss:
    """``kind`` is one of :data:`LOSSES`; ``output`` names an output of the model.

    With ``kind`` "output" that is the loss itself, a scalar; otherwise ``labels`` names the input
    that it is compared with: class indices (int64), one per position of all but the last
    dimension of ``output``, or for "mse" values of its shape.
    """

    kind: str
    output: str
    labels: str | None = None


@dataclass(frozen=True)
class Optimizer:
    """``name`` is one of :data:`OPTIMIZERS`; the learning rate is an input of every step.

    SGD: w - lr (g + decay w). Momentum: v' = momentum v + g, w - lr v' (PyTorch's). Adam and AdamW:
    Kingma and Ba, algorithm 1; Loshchilov and Hutter, algorithm 2 (decay apart from the gradient).
    """

    name: str
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0


@dataclass(frozen=True)
class TrainingSpec:
    """One training step.

    Gradients are summed over ``micro_batches`` batches and divided by their number. ``clip_norm``
    bounds the norm of all gradients together. With a narrow ``precision`` the forward and backward
    passes compute in it, on copies of float32 parameters, and the loss is scaled by an input.
    ``recompute`` says which activations are computed anew in the backward pass: none; "light":
    all but results of products and convolutions; "half" and "blocks": all inside of every second
    or of every repeated block. Parameters whose name matches a pattern of ``freeze`` stay as
    they are.
    """

    loss: Loss
    optimizer: Optimizer = field(default_factory=lambda: Optimizer("adamw"))
    micro_batches: int = 1
    clip_norm: float | None = None
    precision: Literal["float32", "float16", "bfloat16"] = "float32"
    recompute: str = "none"
    freeze: tuple[str, ...] = ()

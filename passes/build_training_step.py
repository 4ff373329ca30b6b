"""`build-training-step`: the loss, the gradients and the update of the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import Pass

if TYPE_CHECKING:
    from tensoropt.compiler.training.spec import TrainingSpec

__all__ = ["BuildTrainingStepPass"]


@dataclass(frozen=True)
class BuildTrainingStepPass(Pass):
    """Turns the forward graph into one step: loss, gradients, and the update of the parameters.

    `loss` is `output:NAME` (an output of one number), `softmax-cross-entropy:OUTPUT,LABELS` or
    `mse:OUTPUT,LABELS`; `optimizer` is sgd, momentum, adam or adamw. `freeze` lists patterns of
    names of parameters that are not trained, separated by commas. Nor are arguments marked
    `topt.fixed`, which the exporter of the model does not call parameters. `clip-norm` bounds the
    norm of all gradients together. `precision` is that of products and of what reads them (float32,
    float16, or bfloat16, for which ONNX Runtime has no CPU kernels); parameters keep their type.
    `recompute` says which activations the backward pass computes again: none; light, all except
    results of products; blocks, all inside repeated layers, or inside about sqrt(n) parts if
    nothing repeats; half, all inside every second block.

    Parameters become state (`topt.state`) that the step takes and returns (`topt.updates`), like
    the moments of the optimizer; scalars such as the learning rate are marked `topt.hyper`.
    Every op gets its phase (`topt.phase`) and a number, and names the op whose strategy decides
    its own. What only made other outputs than the loss is removed.

    Refuses symbolic dimensions, an opset before 20, a loss that is no output or depends on no
    parameter, and an operator without a gradient between a parameter and the loss.
    """

    name: ClassVar[str] = "build-training-step"
    summary: ClassVar[str] = "Build the training step: loss, gradients and the update."

    loss: str = ""
    optimizer: str = "adamw"
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    micro_batches: int = 1
    clip_norm: float | None = None
    precision: str = "float32"
    recompute: str = "none"
    freeze: str = ""

    def run(self, module: ir.Module) -> None:
        from tensoropt.compiler.training.step import build_training_step
        from tensoropt.passes.dce import DcePass

        build_training_step(module, self.spec)
        DcePass().run(module)

    @property
    def spec(self) -> TrainingSpec:
        """The options, checked; raises UserError."""
        from tensoropt.compiler.training import spec

        rates = (self.momentum, self.beta1, self.beta2, self.epsilon, self.weight_decay)
        return spec.TrainingSpec(
            spec.parse_loss(self.loss),
            spec.Optimizer(self.optimizer, *rates),
            self.micro_batches,
            self.clip_norm,
            self.precision,
            self.recompute,
            spec.parse_patterns(self.freeze),
        )

"""`build-training-step`: build the loss, the gradients and the update of the parameters."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, ClassVar

from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import NAME, PARAM, TRAINING
from tensoropt.passes.base import Pass
from tensoropt.passes.registry import create
from tensoropt.runtime.support.collectives import DOMAIN

if TYPE_CHECKING:
    from tensoropt.compiler.cost.device import Device
    from tensoropt.compiler.training.gradients.kernel_attention import AttentionKernels
    from tensoropt.compiler.training.spec import TrainingSpec

__all__ = ["BuildTrainingStepPass"]


@dataclass(frozen=True)
class BuildTrainingStepPass(Pass):
    """Turns the forward graph into one step: loss, gradients, and the update of the parameters.

    `loss` is `output:NAME` (an output of one number), `softmax-cross-entropy:OUTPUT,LABELS` or
    `mse:OUTPUT,LABELS`. The cross entropy is a mean over the labels other than `ignore-index`, and
    takes `label-smoothing` and comma-separated `class-weights`. `optimizer` is sgd, momentum, adam
    or adamw. `freeze` is a comma-separated list of patterns of parameter names that are not
    trained; `freeze-rows` lists rows of weights that get no gradient, such as `embed=0,3;other=-1`.
    `groups` gives parameters a weight decay of their own and a factor of the learning rate, such as
    `*.bias:weight-decay=0;head.*:rate-factor=10`. Arguments marked `topt.fixed`, which the exporter
    does not list as parameters, are not trained either. `clip-norm` bounds the global norm of all
    gradients. `precision` is the type of products and their readers (float32, float16, or bfloat16,
    for which ONNX Runtime has no CPU kernels); parameters keep their type. `recompute` selects the
    activations that the backward pass recomputes: none, light, half or blocks (see the pass
    `recompute`), or auto, which lets the search choose. The clones come with the search; until then
    the function is marked `topt.recompute`. With several `micro-batches`, gradients accumulate over
    them, as sums that may stay partial until the update. With `fuse-attention`, ranks have kernels
    of `tensoropt.Attention`, on processors or on GPUs of the `architectures`: attention with such a
    kernel becomes this operation (see the pass `fuse-attention`), and its scores are not saved.

    Parameters become state (`topt.state`) that the step takes and returns (`topt.updates`), like
    the moments of the optimizer; scalars such as the learning rate are marked `topt.hyper`.
    Every op gets its phase (`topt.phase`), a number, and a reference to its leader, the op that
    decides its strategy. Operations that only lead to outputs other than the loss are removed.

    Refuses symbolic dimensions, an opset before 20, a loss that is not an output or depends on no
    parameter, and an operator without a gradient between a parameter and the loss.
    """

    name: ClassVar[str] = "build-training-step"
    summary: ClassVar[str] = "Build the training step: loss, gradients and the update."
    reaches: ClassVar[str | None] = "train"

    loss: str = ""
    ignore_index: int = -100
    label_smoothing: float = 0.0
    class_weights: str = ""
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
    freeze_rows: str = ""
    groups: str = ""
    fuse_attention: bool = False
    architectures: str = ""
    searched_batches: str | None = field(default=None, metadata={"option": False})
    """Numbers of micro-batches to search, instead of ``micro_batches``. The pass refuses it: the
    caller, which has the model, builds a step for each number."""
    unfreeze: str = field(default="", metadata={"option": False})
    """Patterns of tables and masks to train. The caller, which has the model, freezes the others by
    name."""

    @classmethod
    def from_spec(cls, spec: TrainingSpec, recompute: str | None = None) -> BuildTrainingStepPass:
        """Return the pass for ``spec``; ``recompute``, if given, overrides its recomputation."""
        optimizer = {**vars(spec.optimizer)}
        return cls(
            loss=str(spec.loss),
            ignore_index=spec.loss.ignore_index,
            label_smoothing=spec.loss.label_smoothing,
            class_weights=",".join(map(str, spec.loss.class_weights)),
            optimizer=optimizer.pop("name"),
            **optimizer,
            micro_batches=spec.micro_batches,
            clip_norm=spec.clip_norm,
            precision=spec.precision,
            recompute=recompute or spec.recompute,
            freeze=",".join(spec.freeze),
            freeze_rows=";".join(f"{n}={','.join(map(str, rows))}" for n, rows in spec.freeze_rows),
            groups=";".join(map(str, spec.groups)),
        )

    def for_device(self, device: Device) -> BuildTrainingStepPass:
        """Return the pass that builds the step for ranks on ``device``."""
        numbers = ",".join(map(str, device.architectures))
        return replace(self, fuse_attention=device.has_attention, architectures=numbers)

    @classmethod
    def read(cls, module: ir.Module) -> BuildTrainingStepPass:
        """Return the pass that built the step in ``module``; raises UserError for bad options."""
        settings = TRAINING.of(module.operation.attributes)
        texts = {name.replace("_", "-"): str(value) for name, value in settings.items()}
        made = create(cls.name, texts)
        assert isinstance(made, cls)
        return made

    def run(self, module: ir.Module) -> None:
        if self.searched_batches is not None:
            raise UserError(
                f"--micro-batches: expected a number without a search, got: {self.searched_batches}"
            )
        kernels = self._kernels()
        _build(module, self.spec, kernels)
        options = [option for option in fields(self) if option.metadata.get("option", True)]
        own = {option.name: getattr(self, option.name) for option in options}
        if kernels is None or not _has_attention(module):
            own |= {"fuse_attention": False, "architectures": None}
        own["architectures"] = own["architectures"] or None
        settings = {
            name: "true" if value is True else value
            for name, value in own.items()
            if value is not None and value is not False
        }
        TRAINING.set(module.operation.attributes, settings)

    def _kernels(self) -> AttentionKernels | None:
        """Return the kernels of attention that ranks have; processors train in float32 only."""
        from tensoropt.compiler.training.gradients.kernel_attention import AttentionKernels

        on_gpus = bool(self.architectures)
        if not self.fuse_attention or not (on_gpus or self.precision == "float32"):
            return None
        return AttentionKernels(self.precision, self.architectures)

    @property
    def spec(self) -> TrainingSpec:
        """The validated options of one step; raises UserError."""
        from tensoropt.compiler.training import spec

        loss = replace(
            spec.parse_loss(self.loss),
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            class_weights=spec.parse_weights(self.class_weights),
        )
        rates = (self.momentum, self.beta1, self.beta2, self.epsilon, self.weight_decay)
        return spec.TrainingSpec(
            loss,
            spec.Optimizer(self.optimizer, *rates),
            self.micro_batches,
            self.clip_norm,
            self.precision,
            self.recompute,
            spec.parse_patterns(self.freeze),
            spec.parse_rows(self.freeze_rows),
            spec.parse_groups(self.groups),
        )


def _has_attention(module: ir.Module) -> bool:
    """Return whether the step may have attention, as one operation or with a softmax."""
    names = {f"onnx.{onnx.ATTENTION}", "onnx.Softmax"}
    return any(op.name in names for op in onnx.walk(onnx.function(module)))


def _build(module: ir.Module, spec: TrainingSpec, kernels: AttentionKernels | None) -> None:
    """Turn ``module`` into the training step of ``spec``."""
    from tensoropt.compiler.training.cut import drop_unused_arguments
    from tensoropt.compiler.training.step import build_training_step
    from tensoropt.passes.dce import DcePass
    from tensoropt.passes.fuse_attention import FuseAttentionPass

    if kernels is not None:
        FuseAttentionPass(kernels.architectures, kernels.precision).run(module)
        DcePass().run(module)
    build_training_step(module, spec, kernels)
    main = onnx.function(module)
    if kernels is not None and any(op.name == f"onnx.{onnx.ATTENTION}" for op in onnx.walk(main)):
        onnx.require_domain(module, DOMAIN)
    DcePass().run(module)
    drop_unused_arguments(module)  # inputs that the loss does not depend on
    for value, own in onnx.arguments(onnx.function(module)):
        # Strings cannot be in persistent memory.
        if not PARAM.on(own) and "!onnx.String" in str(value.type):
            raise UserError(
                f"'{NAME.of(own)}': expected inputs of a training step that are "
                f"numbers or booleans, got: {value.type}"
            )

"""Specification of a training step, from flags or from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

from tensoropt.compiler.support.choices import check_known, whole_number
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.micro_batches import MOST, check_text, is_searched
from tensoropt.compiler.training.spec import (
    AUTO,
    CROSS_ENTROPY,
    RECOMPUTE,
    Optimizer,
    parse_patterns,
)

if TYPE_CHECKING:
    from tensoropt.compiler.planning.request import Request
    from tensoropt.passes.build_training_step import BuildTrainingStepPass

__all__ = ["Training", "step_of"]

T = TypeVar("T")

_OWNERS = {
    "momentum": ("momentum", "sgd"),
    "betas": ("adam", "adamw"),
    "adam_epsilon": ("adam", "adamw"),
}
_MEANT = {"epsilon": "adam-epsilon", "beta1": "betas", "beta2": "betas"}
"""Flags with other names than the fields that they set."""


@dataclass(frozen=True)
class Training:
    """A training step; each field is the flag of the same name, with its default.

    ``loss`` is ``softmax-cross-entropy:OUTPUT,LABELS``, ``mse:OUTPUT,LABELS`` or ``output:NAME``.
    The first is a mean over the labels other than ``ignore_index`` (-100), in all batches of a
    step. As in PyTorch, it takes ``label_smoothing`` and ``class_weights``, one number per class.
    ``optimizer`` is sgd, momentum, adam or adamw, in any case, such as PyTorch's "AdamW"; sgd with
    ``momentum`` is momentum. ``betas`` and ``adam_epsilon`` are for adam and adamw.
    ``micro_batches`` is the number of batches with gradients that are summed for a step (1). With
    "auto" or a range such as "1..8" the search picks the number, and splits the batch of the model.
    ``clip_norm`` bounds the norm of all gradients together; ``precision`` is float32, float16 or
    bfloat16. ``recompute`` selects the activations that the backward pass
    recomputes: none, light, half, blocks, or auto (the default), which searches them all.
    Parameters with a name that matches a pattern of ``freeze`` are not trained. Neither are tables
    and masks, which are only added, multiplied or compared, unless a pattern of ``unfreeze``
    matches or the exporter names them as parameters. ``freeze_rows`` are rows of weights, by name,
    that get no gradient, as with PyTorch's ``padding_idx``; weight decay still applies to them.
    ``groups`` has options of parameters by patterns of their names, separated by commas, such as
    ``{"*.bias,*norm*": {"weight_decay": 0.0}, "head.*": {"rate_factor": 10.0}}``: a weight decay of
    their own, and a factor of the learning rate. The first group with a parameter applies.

    Raises :class:`UserError` for an invalid combination.
    """

    loss: str
    optimizer: str = "adamw"
    momentum: float | None = None
    betas: tuple[float, float] | None = None
    adam_epsilon: float | None = None
    weight_decay: float | None = None
    clip_norm: float | None = None
    micro_batches: int | str | None = None
    precision: str = "float32"
    recompute: str | None = None
    freeze: str | Sequence[str] = ()
    unfreeze: str | Sequence[str] = ()
    freeze_rows: Mapping[str, int | Sequence[int]] = field(default_factory=dict)
    ignore_index: int | None = None
    label_smoothing: float | None = None
    class_weights: Sequence[float] | None = None
    groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.step()

    def step(
        self, planned: Mapping[str, Any] | None = None, *, compared: bool = False
    ) -> BuildTrainingStepPass:
        """Return the pass that builds the step to search.

        ``planned`` is a plan.json with given strategies. With ``compared``, there is only one
        alternative of the step, on which searches are compared.
        """
        made = _checked(self._pass)
        _checked(lambda: made.spec)
        if compared and made.searched_batches is not None:
            got = made.searched_batches
            raise UserError(f"--micro-batches: expected a number with --compare, got: {got}")
        return replace(made, recompute=self._recompute(planned, compared))

    def _pass(self) -> BuildTrainingStepPass:
        from tensoropt.passes.build_training_step import BuildTrainingStepPass

        if not isinstance(self.loss, str):
            got = type(self.loss).__name__
            raise UserError(f"--loss: expected a text such as mse:OUTPUT,LABELS, got: {got}")
        batches = str(1 if self.micro_batches is None else self.micro_batches)
        searched = batches if is_searched(batches) else None
        if searched is not None:
            check_text(searched)
        return BuildTrainingStepPass(
            loss=self.loss,
            **self._loss_options(),
            **self._rates(),
            micro_batches=1 if searched else whole_number("--micro-batches", batches, 1, MOST),
            searched_batches=searched,
            clip_norm=None if self.clip_norm is None else _real("clip norm", self.clip_norm),
            precision=self.precision,
            groups=_groups(self.groups),
            freeze=_patterns(self.freeze),
            unfreeze=_patterns(self.unfreeze),
            freeze_rows=";".join(
                f"{name}={_rows_text(rows)}" for name, rows in self.freeze_rows.items()
            ),
        )

    def _loss_options(self) -> dict[str, Any]:
        """Return the options of the loss; refuse them with a loss that has none."""
        index, smoothing, weights = self.ignore_index, self.label_smoothing, self.class_weights
        given: dict[str, Any] = {}
        if index is not None:
            given["ignore_index"] = whole_number("--ignore-index", str(index), -(2**31), 2**31 - 1)
        if smoothing is not None:
            given["label_smoothing"] = _real("--label-smoothing", smoothing)
        if weights is not None:
            numbers = [_real("--class-weights", weight) for weight in weights]
            given["class_weights"] = ",".join(map(str, numbers))
        for name in given:
            if not self.loss.startswith(f"{CROSS_ENTROPY}:"):
                flag = f"--{name.replace('_', '-')}"
                raise UserError(f"{flag} belongs to --loss {CROSS_ENTROPY}, got: {self.loss}")
        return given

    def _rates(self) -> dict[str, Any]:
        """Return the options of the optimizer; refuse an option of another optimizer."""
        made = _checked(lambda: Optimizer(str(self.optimizer)))
        if made.name == "sgd" and self.momentum:  # PyTorch's SGD has both
            made = Optimizer("momentum")
        for name, owners in _OWNERS.items():
            if getattr(self, name) is not None and made.name not in owners:
                flag, listed = f"--{name.replace('_', '-')}", " or ".join(owners)
                raise UserError(
                    f"{flag} belongs to --optimizer {listed}, got: --optimizer {made.name}"
                )
        if self.betas is not None and len(self.betas) != 2:
            raise UserError(
                f"--betas: expected two numbers such as 0.9,0.999, got: {len(self.betas)} of them"
            )
        beta1, beta2 = (None, None) if self.betas is None else self.betas
        given = {
            "beta1": beta1,
            "beta2": beta2,
            "momentum": self.momentum,
            "epsilon": self.adam_epsilon,
            "weight_decay": self.weight_decay,
        }
        rates = {name: _real(name, value) for name, value in given.items() if value is not None}
        return {"optimizer": made.name, **rates}

    def _recompute(self, planned: Mapping[str, Any] | None, compared: bool) -> str:
        """Return the choice of recomputed activations; a comparison needs a single choice."""
        pinned = None if planned is None else str(planned["training"]["recompute"])
        given = self.recompute
        if given is None:
            given = pinned or ("none" if compared else AUTO)
        check_known("--recompute: unknown choice", given, (*RECOMPUTE, AUTO))
        if pinned is not None and given != pinned:
            raise UserError(f"--recompute: expected {pinned}, as --strategies has it, got: {given}")
        if given == AUTO and compared:
            listed = ", ".join(RECOMPUTE)
            raise UserError(f"--recompute: expected one of {listed} with --compare, got: auto")
        return given


def step_of(
    training: Training | None, request: Request | None, *, compared: bool = False
) -> BuildTrainingStepPass | None:
    """Return the pass that builds the step of ``training`` for ``request``; None for inference."""
    if not isinstance(training, Training | None):
        raise UserError(f"train: expected a Training, got: {training!r}")
    planned = None if request is None else request.given_plan
    if request is not None and planned is not None:
        strategies, train = map(request.interface.name_of, ("strategies", "train"))
        place = f"{strategies} {request.strategies}"
        if training is not None and "training" not in planned:
            raise UserError(f"{place}: is not for training, expected no {train}")
        if training is None and "training" in planned:
            raise UserError(f"{place}: is for training, expected {train} as well")
    if training is None:
        return None
    step = training.step(planned, compared=compared)
    return step if request is None else step.for_device(request.description)


def _patterns(given: str | Sequence[str]) -> str:
    """Return patterns of names, or comma-separated lists of them, in the form of the pass."""
    texts = [given] if isinstance(given, str) else given
    return ",".join(pattern for text in texts for pattern in parse_patterns(text))


def _groups(groups: Mapping[str, Mapping[str, float]]) -> str:
    """Return groups of parameters in the form of the pass."""
    return ";".join(
        f"{patterns}:"
        + ",".join(f"{key.replace('_', '-')}={_real('--group', x)}" for key, x in options.items())
        for patterns, options in groups.items()
    )


def _rows_text(rows: int | Iterable[int]) -> str:
    """Return rows as text; a number is one row."""
    return ",".join(map(str, rows if isinstance(rows, Iterable) else [rows]))


def _real(what: str, given: object) -> float:
    """Return a number of any kind as a float, since the constants of a step are floats."""
    if isinstance(given, bool) or not isinstance(given, Real):
        raise UserError(f"{what}: expected a number, got: {given!r}")
    return float(given)


def _checked(make: Callable[[], T]) -> T:
    """Return ``make()``; errors name the flag instead of the field."""
    try:
        return make()
    except UserError as error:
        field_name, colon, rest = str(error).partition(": ")
        if not colon or field_name.startswith("--"):
            raise
        flag = _MEANT.get(field_name, field_name.replace(" ", "-"))
        raise UserError(f"--{flag}: {rest}") from None

"""The training flags of tensoropt-opt, checked and turned into the pass that builds the step."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tensoropt.compiler.support.choices import check_known, whole_number
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.spec import RECOMPUTE, Optimizer, parse_patterns

if TYPE_CHECKING:
    from tensoropt.passes.build_training_step import BuildTrainingStepPass

__all__ = ["check_training", "read_training"]

T = TypeVar("T")

_FLAGS = (
    "loss",
    "optimizer",
    "momentum",
    "betas",
    "adam_epsilon",
    "weight_decay",
    "clip_norm",
    "micro_batches",
    "precision",
    "recompute",
    "freeze",
)
_OWNERS = {
    "momentum": ("momentum",),
    "betas": ("adam", "adamw"),
    "adam_epsilon": ("adam", "adamw"),
}
_MEANT = {"epsilon": "adam-epsilon", "beta1": "betas", "beta2": "betas"}
"""Flags that are not called like what they set."""

MOST_MICRO_BATCHES = 2**20


def check_training(args: argparse.Namespace) -> None:
    """Refuse flags of training without ``--train``."""
    given = next((name for name in _FLAGS if getattr(args, name) not in (None, [])), None)
    if given is not None and not args.train:
        raise UserError(f"{_flag(given)} belongs to training, expected --train as well")
    if args.emit == "train" and not args.train:
        raise UserError("--emit train prints the step of training, expected --train as well")


def read_training(
    args: argparse.Namespace, pinned: str | None = None
) -> BuildTrainingStepPass | None:
    """Return the pass that builds the step to search; none without ``--train``.

    ``pinned`` is what the plan whose strategies are taken computes anew.
    """
    if not args.train:
        return None
    if args.loss is None:
        raise UserError(
            "--train needs --loss, such as softmax-cross-entropy:OUTPUT,LABELS, mse:OUTPUT,LABELS "
            "or output:NAME"
        )
    step = _step(args)
    _checked(lambda: step.spec)
    return replace(step, recompute=_recompute(args, pinned))


def _step(args: argparse.Namespace) -> BuildTrainingStepPass:
    from tensoropt.passes.build_training_step import BuildTrainingStepPass

    micro_batches = "1" if args.micro_batches is None else args.micro_batches
    return BuildTrainingStepPass(
        loss=args.loss,
        optimizer="adamw" if args.optimizer is None else args.optimizer,
        **_optimizer(args),
        micro_batches=whole_number("--micro-batches", micro_batches, 1, MOST_MICRO_BATCHES),
        clip_norm=None if args.clip_norm is None else _number("--clip-norm", args.clip_norm),
        precision="float32" if args.precision is None else args.precision,
        freeze=",".join(pattern for text in args.freeze for pattern in parse_patterns(text)),
    )


def _optimizer(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the flags say of the optimizer, each of which belongs to some alone."""
    made = _checked(lambda: Optimizer("adamw" if args.optimizer is None else args.optimizer))
    for name, owners in _OWNERS.items():
        if getattr(args, name) is not None and made.name not in owners:
            flag, listed = _flag(name), " or ".join(owners)
            raise UserError(f"{flag} belongs to --optimizer {listed}, got: --optimizer {made.name}")
    given = _betas(args.betas)
    for field, name in (("momentum",) * 2, ("epsilon", "adam_epsilon"), ("weight_decay",) * 2):
        if getattr(args, name) is not None:
            given[field] = _number(_flag(name), getattr(args, name))
    return given


def _betas(text: str | None) -> dict[str, float]:
    if text is None:
        return {}
    numbers = text.split(",")
    if len(numbers) != 2:
        raise UserError(f"--betas: expected two numbers such as 0.9,0.999, got: '{text}'")
    return {f"beta{i}": _number("--betas", number) for i, number in enumerate(numbers, 1)}


def _recompute(args: argparse.Namespace, pinned: str | None) -> str:
    """Return what to compute anew; a comparison of searches is of one step."""
    default = pinned or ("none" if args.compare is not None else "auto")
    given: str = default if args.recompute is None else args.recompute
    check_known("--recompute: unknown choice", given, (*RECOMPUTE, "auto"))
    if pinned is not None and given != pinned:
        raise UserError(f"--recompute: expected {pinned}, as --strategies has it, got: {given}")
    if given == "auto" and args.compare is not None:
        listed = ", ".join(RECOMPUTE)
        raise UserError(f"--recompute: expected one of {listed} with --compare, got: auto")
    return given


def _checked(make: Callable[[], T]) -> T:
    """Return ``make()``; what it refuses is called by its flag."""
    try:
        return make()
    except UserError as error:
        what, colon, rest = str(error).partition(": ")
        if not colon or what.startswith("--"):
            raise
        flag = _MEANT.get(what, what.replace(" ", "-"))
        raise UserError(f"--{flag}: {rest}") from None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{flag}: expected a number, got: '{text}'") from None

"""The training flags of tensoropt-opt, checked and turned into the pass that builds the step."""

from __future__ import annotations

import argparse

from tensoropt.compiler.api.training import Training
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.spec import parse_rows

__all__ = ["check_training", "read_training"]

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
    "unfreeze",
    "freeze_rows",
)
_WORDS = ("loss", "optimizer", "precision", "recompute")
_NUMBERS = ("momentum", "adam_epsilon", "weight_decay", "clip_norm")


def check_training(args: argparse.Namespace) -> None:
    """Refuse training flags without ``--train``."""
    given = next((name for name in _FLAGS if getattr(args, name) not in (None, [])), None)
    if given is not None and not args.train:
        raise UserError(f"{_flag(given)} belongs to training, expected --train as well")
    if args.emit == "train" and not args.train:
        raise UserError("--emit train prints the step of training, expected --train as well")


def read_training(args: argparse.Namespace) -> Training | None:
    """Return the training step of the flags; None without ``--train``."""
    if not args.train:
        return None
    if args.loss is None:
        raise UserError(
            "--train needs --loss, such as softmax-cross-entropy:OUTPUT,LABELS, mse:OUTPUT,LABELS "
            "or output:NAME"
        )
    given = {name: getattr(args, name) for name in _WORDS}
    given |= {name: _number(_flag(name), getattr(args, name)) for name in _NUMBERS}
    given |= {"betas": _betas(args.betas), "micro_batches": args.micro_batches}
    fields = {name: value for name, value in given.items() if value is not None}
    rows = [entry for text in args.freeze_rows for entry in parse_rows(text)]
    return Training(freeze=args.freeze, unfreeze=args.unfreeze, freeze_rows=dict(rows), **fields)


def _betas(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    numbers = [_read("--betas", number) for number in text.split(",")]
    if len(numbers) != 2:
        raise UserError(f"--betas: expected two numbers such as 0.9,0.999, got: '{text}'")
    return numbers[0], numbers[1]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _number(flag: str, text: str | None) -> float | None:
    return None if text is None else _read(flag, text)


def _read(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{flag}: expected a number, got: '{text}'") from None

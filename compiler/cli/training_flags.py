"""The training flags of tensoropt-opt, turned into a training step."""

from __future__ import annotations

import argparse
from dataclasses import fields

from tensoropt.compiler.api.training import Training
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.options import Interface
from tensoropt.compiler.training.spec import parse_groups, parse_rows
from tensoropt.runtime.support.errors import cause_of

__all__ = ["read_training"]

_NUMBERS = ("momentum", "adam_epsilon", "weight_decay", "clip_norm", "label_smoothing")


def read_training(args: argparse.Namespace) -> Training | None:
    """Return the training step of the flags; None without ``--train``."""
    if not args.train:
        return None
    given = {field.name: getattr(args, field.name) for field in fields(Training)}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given.keys() & _NUMBERS:
        given[name] = _read(Interface.COMMAND.name_of(name), given[name])
    if "betas" in given:
        given["betas"] = _read_betas(args.betas)
    if "class_weights" in given:
        given["class_weights"] = _read_weights(args.class_weights)
    given["groups"] = dict(map(_read_group, args.groups))
    given["freeze_rows"] = dict(row for text in args.freeze_rows for row in parse_rows(text))
    return Training(**given)


def _read_betas(text: str) -> tuple[float, float]:
    numbers = [_read("--betas", number) for number in text.split(",")]
    if len(numbers) != 2:
        raise UserError(f"--betas: expected two numbers such as 0.9,0.999, got: '{text}'")
    return numbers[0], numbers[1]


def _read_group(text: str) -> tuple[str, dict[str, float]]:
    """Return the patterns of a group and its options."""
    parsed = parse_groups(text)
    if len(parsed) != 1:
        raise UserError(f"--group: expected one group, got: '{text}'")
    group, options = parsed[0], {"rate_factor": parsed[0].rate_factor}
    if group.weight_decay is not None:
        options["weight_decay"] = group.weight_decay
    return ",".join(group.patterns), options


def _read_weights(text: str) -> list[float]:
    """Return the numbers in ``text``, or in the .npy file that it names."""
    if not text.endswith(".npy"):
        return [_read("--class-weights", number) for number in text.split(",")]
    import numpy as np

    try:
        weights = np.load(text, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(f"--class-weights {text}: {cause_of(error)}") from None
    if weights.ndim != 1 or weights.dtype.kind not in "fiu":
        raise UserError(
            f"--class-weights {text}: expected a vector of numbers, got: {weights.dtype} of shape "
            f"{weights.shape}"
        )
    return [float(weight) for weight in weights]


def _read(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{flag}: expected a number, got: '{text}'") from None

"""The flags of ``tensoropt-run --train``, and of exporting the trained weights."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tensoropt.runtime.plan.dims import parse_ranges
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.job import Job
from tensoropt.runtime.support.options import add_flags, flag_of, option_names, options_in
from tensoropt.runtime.training.job import TrainJob

__all__ = ["add_training_flags", "check_modes", "is_training", "run_training_command"]

_EXPORTING = ("resume", "export", "model")
_BOTH = ("plans", "train", "format", *option_names(TrainJob))
_TRAINING = {*option_names(TrainJob)} - {*option_names(Job)} - {*_EXPORTING}


def add_training_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that apply only to training and exporting."""
    steps = (
        "data",
        "evaluate_data",
        "evaluate_every",
        "steps",
        "log",
        "shuffle",
        "learning_rate",
        "warmup",
        "schedule",
    )
    add = parser.add_argument_group("training").add_argument
    add_flags(
        add, TrainJob, *steps, "min_learning_rate", "total_steps", "loss_scale", "skip_not_finite"
    )
    add = parser.add_argument_group("checkpoints and trained models").add_argument
    add_flags(add, TrainJob, "checkpoint", "checkpoint_every", "keep", *_EXPORTING)


def is_training(arguments: argparse.Namespace) -> bool:
    """Return True if the command trains or exports."""
    return bool(arguments.train or arguments.export is not None)


def check_modes(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Raise `UserError` for a flag that does not apply to the mode of the command."""
    given = [name for name, value in vars(arguments).items() if value != parser.get_default(name)]
    for name in given:
        if arguments.train and name not in _BOTH:
            raise UserError(f"{flag_of(name)}: not with --train")
        if not arguments.train and name in _TRAINING:
            raise UserError(f"{flag_of(name)}: expected --train")
        if not is_training(arguments) and name in _EXPORTING:
            needed = "expected --train, or --resume, --export and --model"
            raise UserError(f"{flag_of(name)}: {needed}")
    if is_training(arguments):
        _check_training(arguments)


def _check_training(arguments: argparse.Namespace) -> None:
    if len(arguments.plans) != 1:
        raise UserError(f"--train: expected one plan, got: {len(arguments.plans)}")
    needed = ("data", "steps") if arguments.train else _EXPORTING
    for name in needed:
        if not getattr(arguments, name):
            what = "--train" if arguments.train else "--export without --train"
            least = ", at least 1" if name == "steps" else ""
            raise UserError(f"{what}: expected --{name} too{least}")


def run_training_command(arguments: argparse.Namespace) -> int:
    """Train or export a checkpoint, and return the exit status. Raises `UserError`."""
    options = {**options_in(arguments, TrainJob), "dims": parse_ranges(arguments.dims)}
    job = TrainJob(arguments.plans[0], **options)
    return _train(job, arguments) if arguments.train else _export(job)


def _train(job: TrainJob, arguments: argparse.Namespace) -> int:
    from tensoropt.runtime.api.train import run_job
    from tensoropt.runtime.cli.training_report import train_json, train_text

    result = run_job(job)
    sys.stdout.write(train_json(result) if arguments.format == "json" else train_text(result))
    return 128 + result.stop_signal if result.stop_signal else 0


def _export(job: TrainJob) -> int:
    from tensoropt.runtime.launch.launcher import ranks_present
    from tensoropt.runtime.training.checkpoint import find_checkpoint
    from tensoropt.runtime.training.export import export_model
    from tensoropt.runtime.training.prepare import check_training

    present = ranks_present()
    if present is None or present[0] == 0:
        check_training(job)
        path = find_checkpoint(Path(str(job.resume)))
        export_model(Path(str(job.model)), path, Path(str(job.export)))
    return 0

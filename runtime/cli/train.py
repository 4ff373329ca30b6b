"""The flags of ``tensoropt-run --train``, and of exporting the trained weights."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.flags import integer, number
from tensoropt.runtime.support.job import PROVIDERS
from tensoropt.runtime.training.job import SCHEDULES, TrainJob

__all__ = [
    "add_provider_flags",
    "add_training_flags",
    "check_modes",
    "is_training",
    "run_training_command",
]

_DEVICE = ("provider", "share_gpus", "cuda_graphs")
_BOTH = ("plans", "train", "threads", "timeout", "stall", "format", "seed", *_DEVICE)
_EXPORTING = ("resume", "export", "model")
_RATE = ("learning_rate", "warmup", "schedule", "total_steps", "loss_scale")
_CHECKPOINTS = ("checkpoint", "checkpoint_every", "keep")
_TRAINING = ("data", "steps", "log", "shuffle", *_RATE, *_CHECKPOINTS)


def add_provider_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the ranks' devices."""
    add = parser.add_argument_group("devices of the ranks").add_argument
    add("--provider", choices=PROVIDERS, default="cpu", help="cuda: one GPU per rank (cpu)")
    add("--share-gpus", action="store_true", help="allow more ranks than GPUs, for tests")
    add("--cuda-graphs", action="store_true", help="run a step as one CUDA graph if possible")


def add_training_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that apply only to training and exporting."""
    _add_steps(parser.add_argument_group("training").add_argument)
    add = parser.add_argument_group("checkpoints and trained models").add_argument
    add("--checkpoint", metavar="DIR", help="write a checkpoint (safetensors) to DIR at the end")
    add("--checkpoint-every", type=integer(1), metavar="N", help="and one every N steps")
    add("--keep", type=integer(1), default=2, metavar="K", help="checkpoints to keep (default 2)")
    add("--resume", metavar="PATH", help="resume from a checkpoint, or from the latest in a folder")
    add("--export", metavar="ONNX", help="write --model with the trained weights; without --train, "
        "with the weights of --resume")  # fmt: skip
    add("--model", metavar="ONNX", help="the model that the plan was compiled from")


def _add_steps(add: Callable[..., Any]) -> None:
    add("--data", metavar="SOURCE", help=".npz, .parquet, .arrow or .feather file, or folder of "
        "them, with every input and label by name; or samples from Python, module:factory or "
        "FILE.py:factory")  # fmt: skip
    add("--steps", type=integer(1), metavar="N", help="train for N more steps")
    add("--log", metavar="JSONL", help="one object per step: step, loss, time_s, learning_rate")
    add("--shuffle", type=integer(0), metavar="K", help="draw the order of samples from seed K")
    rate = {"type": number(0.0), "default": 1e-3, "metavar": "X"}
    add("--learning-rate", **rate, help="highest learning rate (default 1e-3)")
    add("--warmup", type=integer(0), default=0, metavar="N", help="steps to the highest rate")
    add("--schedule", choices=SCHEDULES, default="constant", help="rate after warmup (constant)")
    add("--total-steps", type=integer(1), metavar="N",
        help="step at which the schedule ends (default: the last step of this run)")  # fmt: skip
    add("--loss-scale", type=number(2.0**-24), metavar="X",
        help="fixed loss scale of a float16 plan (default: dynamic, from 65536)")  # fmt: skip


def is_training(arguments: argparse.Namespace) -> bool:
    """Return True if the command trains or exports."""
    return bool(arguments.train or arguments.export is not None)


def check_modes(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Raise `UserError` for a flag that does not apply to the mode of the command."""
    given = [name for name, value in vars(arguments).items() if value != parser.get_default(name)]
    for name in given:
        flag = f"--{name.replace('_', '-')}"
        if name in _BOTH:
            continue
        if arguments.train and name not in (*_TRAINING, *_EXPORTING):
            raise UserError(f"{flag}: not with --train")
        if not arguments.train and name in _TRAINING:
            raise UserError(f"{flag}: expected --train")
        if not is_training(arguments) and name in _EXPORTING:
            raise UserError(f"{flag}: expected --train, or --resume, --export and --model")
    if is_training(arguments):
        _check_training(arguments)


def _check_training(arguments: argparse.Namespace) -> None:
    if len(arguments.plans) != 1:
        raise UserError(f"--train: expected one plan, got: {len(arguments.plans)}")
    needed = ("data", "steps") if arguments.train else _EXPORTING
    for name in needed:
        if getattr(arguments, name) is None:
            what = "--train" if arguments.train else "--export without --train"
            raise UserError(f"{what}: expected --{name} too")
    for name, other in (("export", "model"), ("model", "export")):
        if getattr(arguments, name) is not None and getattr(arguments, other) is None:
            raise UserError(f"--{name}: expected --{other} too")
    if arguments.checkpoint_every is not None and arguments.checkpoint is None:
        raise UserError("--checkpoint-every: expected --checkpoint DIR too")


def run_training_command(arguments: argparse.Namespace) -> int:
    """Train or export a checkpoint, and return the exit status. Raises `UserError`."""
    job = _job(arguments)
    return _train(job, arguments) if arguments.train else _export(job)


def _job(arguments: argparse.Namespace) -> TrainJob:
    names = (*_TRAINING, *_EXPORTING, *_DEVICE, "threads", "seed")
    values = {name: getattr(arguments, name) for name in names}
    limits = {"timeout_s": arguments.timeout, "stall_s": arguments.stall}
    return TrainJob(arguments.plans[0], **{**values, **limits, "steps": arguments.steps or 0})


def _train(job: TrainJob, arguments: argparse.Namespace) -> int:
    from tensoropt.runtime.api.train import run_job
    from tensoropt.runtime.cli.training_report import train_json, train_text

    result = run_job(job)
    sys.stdout.write(train_json(result) if arguments.format == "json" else train_text(result))
    sys.stdout.flush()
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

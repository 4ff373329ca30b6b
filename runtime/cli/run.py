"""``tensoropt-run``: run a plan on all its ranks, and check it against the one-device run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tensoropt.runtime.cli.generate import add_text_flags, check_text_flags, generate
from tensoropt.runtime.cli.train import (
    add_training_flags,
    check_modes,
    is_training,
    run_training_command,
)
from tensoropt.runtime.plan.dims import parse_ranges
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.job import Job
from tensoropt.runtime.support.options import add_flags, options_in
from tensoropt.runtime.support.places import INPUT
from tensoropt.runtime.support.status_line import show_line
from tensoropt.runtime.support.version import TOOL

__all__ = ["build_parser", "main"]

_DESCRIPTION = """\
Run a plan with one process per rank. Inputs are split and outputs are joined by their layouts.
The ranks are started on this machine, unless this command runs under mpiexec, srun, torchrun or
another launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
Several plans with the same number of ranks run in sequence in the same processes.
--train trains a training plan on batches of --data; --check is for inference.
--generate continues a text with the plan of a decoder that has caches.
A check is UNDECIDED if no output is informative, for example if all outputs are constant; give
other --inputs.
Exit status: 0 if the plan ran and passed the --check, if any; 130 after Ctrl-C, 143 after SIGTERM
and 129 after SIGHUP, which let training write its checkpoint first; 1 otherwise."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    _silence_other_ranks()
    parser = build_parser()
    arguments = parser.parse(argv)
    check_text_flags(arguments, parser)
    if arguments.generate is None:
        check_modes(arguments, parser)
    show_line("starting")
    from tensoropt.runtime.support.onnx_runtime import installation_fault

    fault = installation_fault()
    if fault is not None:
        raise UserError(fault)
    return _run(arguments)


def _silence_other_ranks() -> None:
    """Discard the output of all ranks except rank 0 under another launcher, which runs them all."""
    from tensoropt.runtime.launch.launcher import ranks_present

    present = ranks_present()
    if present is not None and present[0] > 0:
        sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def _run(arguments: argparse.Namespace) -> int:
    if arguments.generate is not None:
        return generate(arguments)
    if is_training(arguments):
        return run_training_command(arguments)
    from tensoropt.runtime.cli.report import has_passed, to_json, to_text
    from tensoropt.runtime.inference.jobs import run

    results = run(_job(arguments))
    if len(results) == 1 and results[0].error is not None:
        raise UserError(f"{results[0].plan}: {results[0].error}")
    sys.stdout.write(to_json(results) if arguments.format == "json" else to_text(results))
    return 0 if has_passed(results) else 1


def _job(arguments: argparse.Namespace) -> Job:
    if arguments.debug and (arguments.check is None or len(arguments.plans) > 1):
        raise UserError(
            "--debug follows the check of one plan, expected --check MODEL and one PLAN"
        )
    options = {**options_in(arguments, Job), "dims": parse_ranges(arguments.dims)}
    return Job(tuple(arguments.plans), model=arguments.check, **options)


def build_parser() -> Parser:
    parser = Parser(
        prog="tensoropt-run",
        description=_DESCRIPTION,
    )
    add = parser.add_argument
    add("plans", nargs="+", type=INPUT, metavar="PLAN", help="plan directory")
    add("--version", action="version", version=TOOL)
    add("--train", action="store_true", help="train a plan made with tensoropt-opt --train")
    add("--check", type=INPUT, metavar="MODEL",
        help="compare every output with MODEL on one device")  # fmt: skip
    add_flags(add, Job, "rtol", "atol", "debug", "runs")
    add("--format", choices=["text", "json"], default="text", help="default: text")
    add = parser.add_argument_group("ranks").add_argument
    add_flags(add, Job, "provider", "threads", "share_gpus", "cuda_graphs", "custom_ops")
    add_flags(add, Job, "rounding")
    add_flags(add, Job, "timeout_s", "stall_s")
    add = parser.add_argument_group("inputs and outputs").add_argument
    add_flags(add, Job, "inputs", "outputs", "seed", "int_range", "dims")
    add_training_flags(parser)
    add_text_flags(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())

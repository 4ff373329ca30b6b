"""tensoropt-profile: measure this machine, and write a device description of it."""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from tensoropt.compiler.api.training import step_of
from tensoropt.compiler.cli.arguments import add_training, parse_flags
from tensoropt.compiler.cli.combinations import TRAINING
from tensoropt.compiler.cli.output import write_text
from tensoropt.compiler.cli.training_flags import read_training
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.installation import check_installation
from tensoropt.compiler.support.options import check_combinations
from tensoropt.compiler.support.progress import Progress
from tensoropt.compiler.support.version import TOOL
from tensoropt.compiler.training.spec import AUTO
from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.ops import library_path
from tensoropt.runtime.plan.dims import mean_of, parse_ranges
from tensoropt.runtime.session.session import cores
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.kinds import SECONDS, integer
from tensoropt.runtime.support.options import add_flags, options_in
from tensoropt.runtime.support.places import FORMS, INPUT, Input, Output
from tensoropt.runtime.support.rank_options import RankOptions

if TYPE_CHECKING:
    from tensoropt.compiler.calibrate.run import Calibration, ProfileRequest
    from tensoropt.compiler.calibrate.samples import Measurements
    from tensoropt.compiler.cost.device import Device

__all__ = ["build_parser", "main"]

MAX_RANKS = 64
_BUDGET_S, _QUICK_S = 60.0, 20.0
_BUSY = 0.2  # largest fraction of the cores that other work may take without a note
_TOO_BUSY = 0.5  # and without a refusal: above it, ranks mostly wait for cores
_LOOK_S, _LOOK_AGAIN_S = 0.5, 3.0

_DESCRIPTION = """\
Measure this machine and write a device description, which tensoropt-opt takes as --device FILE.

Ranks are started on this machine, as tensoropt-run starts them, and all run the same graphs at the
same time: matrix products, common operators, memory, and collectives by size and number of ranks.
With models, the graphs of some of their plans run as well, whole and traced node by node. So
operators are measured in context: in the sizes of a rank, and after ONNX Runtime's optimisations.
A table of the errors of the fit goes to stdout and the description to -o; without -o the
description goes to stdout and the table to stderr. All measurements are saved in
FILE.samples.jsonl next to the description. Later runs with the same -o add to them, and fit to all
of them."""

_EPILOG = """\
exit status: 0 done, 1 a mistake in the input or the flags (explained in one line on stderr),
130 interrupted, with nothing written.

  tensoropt-profile -o here.toml                      common operators and collectives
  tensoropt-profile model.onnx -o here.toml           and the operators of a model as it runs
  tensoropt-opt model.onnx --device here.toml --pareto
"""


def main(argv: list[str] | None = None) -> int:
    """Run tensoropt-profile and return its exit status."""
    return run_command(lambda: _run(parse_flags(build_parser(), argv)))


def build_parser() -> Parser:
    parser = Parser(
        prog="tensoropt-profile",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("models", nargs="*", type=Input(), metavar="MODEL", help="an .onnx model to measure")
    add("-o", dest="output", type=Output(form=FORMS["device"]), metavar="FILE.toml",
        help="where the description goes")  # fmt: skip
    add("--version", action="version", version=TOOL)
    add("--ranks", type=integer(1, MAX_RANKS), metavar="N",
        help="ranks of this machine (default: cores / threads, or GPUs)")  # fmt: skip
    add_flags(
        add, RankOptions, "provider", "share_gpus", threads="threads per rank (default %(default)s)"
    )
    add("--name", metavar="NAME", help="of the device (default: the GPU's, or this machine's)")
    add("--base", type=INPUT, metavar="NAME|FILE.toml",
        help="description for what is not measured (default: cpu, or the GPU's)")  # fmt: skip
    add("--dim", action="append", default=[], metavar="NAME=SIZE",
        help="fix a symbolic dimension of the models' inputs, x:0 one of x without a name; of a "
        "range, such as 1..4096, the middle is measured (repeatable)")  # fmt: skip
    add("--from-tables", type=Input(), metavar="FOLDER", dest="from_tables",
        help="measure nothing: fit the base to tables of products (CSV) and collectives (output of "
        "nccl-tests), or to a GPU's folder of AIConfigurator's systems/data")  # fmt: skip
    add("--anew", action="store_true",
        help="leave out what FILE.samples.jsonl has from before, and replace it")  # fmt: skip
    add("--quick", action="store_true", help="fewer runs, smaller messages, one round of plans")
    add("--busy", action="store_true",
        help="measure although other work takes half of the cores or more")  # fmt: skip
    add("--budget", type=SECONDS, metavar="S",
        help=f"seconds to take, about (default {_BUDGET_S:g})")  # fmt: skip
    add("--format", choices=["table", "json"], default="table", help="of the fit (default table)")
    add_training(parser.add_argument_group("training"))
    parser.set_defaults(recompute="none", threads=1)
    return parser


def _run(args: argparse.Namespace) -> int:
    _check_output(args.output)
    check_combinations(TRAINING, args.given)
    if args.from_tables is not None:
        return _fit_tables(args)
    check_installation()
    _check_started()
    say = Progress()
    say("starting")
    try:
        if not args.busy:
            _check_idle()
        request = _request(args, say)
        from tensoropt.compiler.calibrate.run import run

        with tempfile.TemporaryDirectory(prefix="tensoropt-profile-") as folder:
            profile = run(request, Path(folder), say)
    finally:
        say.clear()
    _print(args, profile)
    return 0


def _fit_tables(args: argparse.Namespace) -> int:
    """Write the base with the tables of a folder, and print the errors of rows left out."""
    from tensoropt.compiler.calibrate.tables.description import describe_tables
    from tensoropt.compiler.calibrate.tables.read import read_tables

    allowed = {"from_tables", "output", "name", "base"}
    others = [name for name in args.given if getattr(args, name, None) and name not in allowed]
    if others:
        got = "model" if "models" in others else args.given[others[0]]
        raise UserError(f"--from-tables measures nothing, expected no {got} with it")
    if args.base is None:
        raise UserError("--from-tables: expected --base with the device of the tables, got: none")
    fitted, text = describe_tables(read_tables(args.from_tables), args.base, args.name)
    write_text(args.output, text)
    stream = sys.stdout if _is_file(args.output) else sys.stderr
    for family, figure in fitted.errors.items():
        print(f"{family}: {figure.text}, of rows left out of the fit", file=stream)
    return 0


def _check_idle() -> None:
    """Refuse to measure on a machine with much other work, unless it ends within seconds."""
    from tensoropt.compiler.calibrate.machine_load import busy_fraction

    busy = busy_fraction(_LOOK_S)
    if (busy or 0.0) > _TOO_BUSY:
        busy = busy_fraction(_LOOK_AGAIN_S)
    if (busy or 0.0) > _TOO_BUSY:
        raise UserError(
            f"the machine is too busy: other work takes {busy:.0%} of its cores, expected an idle "
            "machine, or --busy to measure all the same, for times that are too long"
        )


def _check_started() -> None:
    """Refuse to run under a launcher, as the command itself starts ranks many times."""
    from tensoropt.runtime.launch.launcher import ranks_present

    if ranks_present() is not None:
        raise UserError(
            "tensoropt-profile starts ranks itself, expected it without mpiexec, srun or torchrun"
        )


def _check_output(path: Path | None) -> None:
    """Refuse outputs that cannot be written, before any time is spent."""
    if not _is_file(path):
        return
    if path.suffix != ".toml":
        raise UserError(f"-o {path}: expected a file that ends in .toml, which --device takes")
    if not path.parent.is_dir():
        raise UserError(f"-o {path}: expected an existing folder, got: '{path.parent}'")


def _request(args: argparse.Namespace, say: Progress) -> ProfileRequest:
    from tensoropt.compiler.calibrate.plans import prepare_model
    from tensoropt.compiler.calibrate.run import ProfileRequest
    from tensoropt.compiler.cost.device import load_device

    started_s = time.monotonic()
    step = step_of(read_training(args), None)
    if step is not None and step.recompute == AUTO:
        step = replace(step, recompute="none")
    options = RankOptions(**options_in(args, RankOptions))
    budget_s = args.budget or (_QUICK_S if args.quick else _BUDGET_S)
    ranges = parse_ranges(args.dim)
    dims = {name: mean_of(sizes) for name, sizes in ranges.items()}
    load_device(args.base or "cpu")
    machine = _machine(options, say)
    before = _earlier_measurements(args)
    own = None if before is None else load_device(str(args.output))
    base = args.base or (str(args.output) if own else machine.base)
    if step is not None:
        step = step.for_device(_change_provider(load_device(base), options.provider))
    models = [prepare_model(path, dims, step) for path in args.models]
    return ProfileRequest(
        models,
        args.ranks or machine.ranks,
        options,
        args.name or (own.name if own else machine.name),
        base,
        args.quick,
        budget_s,
        before,
        started_s,
    )


def _change_provider(base: Device, provider: str) -> Device:
    """Return the device that is measured, as far as kernels of attention depend on it."""
    architectures = () if provider == CPU.name else base.architectures
    return replace(base, provider=provider, architectures=architectures)


def _earlier_measurements(args: argparse.Namespace) -> Measurements | None:
    """Return the earlier measurements for the same file, unless ``--anew`` drops them."""
    from tensoropt.compiler.calibrate.sample_file import read_samples, samples_path

    if args.anew or not _is_file(args.output):
        return None
    path = samples_path(args.output)
    return read_samples(path) if args.output.exists() and path.exists() else None


def _is_file(path: Path | None) -> TypeGuard[Path]:
    return path is not None and str(path) != "-"


class _Machine(NamedTuple):
    """Defaults for this machine, for flags that are not given."""

    ranks: int
    name: str
    base: str


def _machine(options: RankOptions, say: Progress) -> _Machine:
    from tensoropt.runtime.device.providers import check_provider

    check_provider(options)
    library_path()  # raises if the runtime's library, which ranks need, is missing
    if options.provider == "cpu":
        ranks = min(max(cores() // (options.threads or 1), 1), MAX_RANKS)
        return _Machine(ranks, platform.node() or "cpu", "cpu")
    from tensoropt.compiler.calibrate.ranks import Ranks
    from tensoropt.compiler.cost.device import device_names

    gpus = Ranks(options, say).gpus()
    name = gpus.gpu_names[0]
    like = (known for known in device_names() if known in name.lower().replace(" ", ""))
    return _Machine(min(len(gpus.gpu_names), MAX_RANKS), name, next(like, "h200"))


def _print(args: argparse.Namespace, profile: Calibration) -> None:
    from tensoropt.compiler.calibrate.report import profile_json, profile_text
    from tensoropt.compiler.calibrate.sample_file import samples_path, write_samples

    to_stdout = not _is_file(args.output)
    stream = sys.stderr if to_stdout else sys.stdout
    table = args.format == "table"
    text = profile_text(profile, colour=stream.isatty()) if table else profile_json(profile)
    if _is_file(args.output):
        write_samples(samples_path(args.output), profile.measured)
    write_text(args.output, profile.description.toml())
    stream.write(text)
    for line in profile.left_out:
        print(f"left out: {line}", file=sys.stderr)
    if (profile.busy or 0.0) > _BUSY:
        print(
            f"note: other work took {profile.busy:.0%} of the cores at the start, expected an idle "
            "machine: times are too long",
            file=sys.stderr,
        )

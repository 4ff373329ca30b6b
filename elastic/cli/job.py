"""``tensoropt-job``: training jobs that change their devices while they run."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tensoropt.elastic.cli.run import add_run
from tensoropt.elastic.control import METHODS, RefusedError
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.kinds import integer
from tensoropt.runtime.support.places import Input
from tensoropt.runtime.support.version import TOOL

__all__ = ["build_parser", "main"]

_DESCRIPTION = """\
Query, change and list training jobs that change their devices while they run.
JOB is a job's name on this machine; --url reaches a job anywhere.
A job that has ended can still be read: status, events, log, output, list.
Exit status: 0 on success; 1 with one line of error; 130 after Ctrl-C."""
_Add = Callable[..., Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    return run_command(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    arguments = build_parser().parse(argv)
    try:
        status: int | None = arguments.work(arguments)
    except RefusedError as error:
        raise UserError(f"{_subject(arguments)}{error}") from None
    return status or 0


def _subject(arguments: argparse.Namespace) -> str:
    """Return the prefix of an error that names the job; errors of `run` name it themselves."""
    if getattr(arguments, "job", None) is not None:
        return f"job '{arguments.job}': "
    return f"{arguments.url}: " if getattr(arguments, "url", None) else ""


def build_parser() -> Parser:
    parser = Parser(
        prog="tensoropt-job",
        description=_DESCRIPTION,
    )
    parser.add_argument("--version", action="version", version=TOOL)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    add_run(commands)
    _add_switching(commands)
    _add_reading(commands)
    return parser


def _add_switching(commands: Any) -> None:
    scale = _command(
        commands, "switching", "scale", "continue with another number of devices, or plan"
    )
    scale("--devices", type=integer(1), required=True, metavar="N", help="number of devices")
    scale("--plan", metavar="NAME", help="a plan of the family (default: the one for N devices)")
    _add_switch_flags(scale)
    migrate = _command(
        commands, "switching", "migrate", "continue on the same number of other devices"
    )
    migrate(
        "--to", type=_names, metavar="DEVICE,...", help="the devices (default: free ones first)"
    )
    _add_switch_flags(migrate)
    stop = _command(commands, "switching", "stop", "write a checkpoint and end")
    stop("--wait", action="store_true", help="wait until the job has ended")
    _add_format(stop)


def _add_switch_flags(add: _Add) -> None:
    add("--method", choices=METHODS, default="live",
        help="from memory to memory, or through a checkpoint on disk (live)")  # fmt: skip
    add("--wait", action="store_true", help="wait for the switch and print its cost")
    _add_format(add, "json")


def _add_reading(commands: Any) -> None:
    profile = _command(commands, "reading", "profile", "print throughput by number of devices")
    profile("--devices", type=_counts, metavar="N,...", help="counts (default: the family's)")
    status = _command(commands, "reading", "status", "print the job's status")
    status("--follow", action="store_true", help="continue until the job has ended")
    events = _command(commands, "reading", "events", "print the events")
    events("--follow", action="store_true", help="continue until the job has ended")
    log = _command(commands, "reading", "log", "print the steps")
    log("--after", type=integer(0), default=0, metavar="STEP", help="only later ones")
    log("--last", type=integer(1), default=10_000, metavar="N", help="at most N (10000)")
    output = _command(commands, "reading", "output", "print the last 64 KiB of the ranks' output")
    page = commands.add_parser("page", help="print the address of the job's page, with the token")
    page.add_argument("job", metavar="JOB", help="its name")
    page.add_argument("--serve", action="store_true", help="serve an ended job's page until Ctrl-C")
    page.set_defaults(work=_work("page", "page"), url=None)
    jobs = commands.add_parser("list", help="print all jobs of this machine")
    jobs.set_defaults(work=_work("listing", "list_jobs"), job=None, url=None)
    for add in (profile, status, events, log, output, jobs.add_argument):
        _add_format(add)


def _command(commands: Any, module: str, name: str, text: str) -> _Add:
    """Add a command on one job; return the function that adds its flags."""
    parser = commands.add_parser(name, help=text, description=text)
    add: _Add = parser.add_argument
    add("job", nargs="?", metavar="JOB", help="its name")
    add("--url", help="the address of its API, instead of JOB")
    add("--token-file", type=Input(), metavar="FILE", help="file with the token for --url")
    parser.set_defaults(work=_work(module, name, asks=True))
    return add


def _add_format(add: _Add, default: str = "text") -> None:
    add("--format", choices=["text", "json"], default=default, help=f"default: {default}")


def _work(module: str, name: str, *, asks: bool = False) -> Callable[[argparse.Namespace], None]:
    """Return the function that runs a command; it imports the command's module when called."""

    def work(arguments: argparse.Namespace) -> None:
        found = getattr(importlib.import_module(f"tensoropt.elastic.cli.{module}"), name)
        found(arguments, _client(arguments)) if asks else found(arguments)

    return work


def _client(arguments: argparse.Namespace) -> Any:
    from tensoropt.elastic.api.client import Client

    if (arguments.job is None) == (arguments.url is None):
        raise UserError("expected JOB, the name of a job, or --url")
    if arguments.job is not None:
        if arguments.token_file is not None:
            raise UserError("--token-file: expected --url too")
        return Client(arguments.job)
    return Client(url=arguments.url, token=_token(arguments.token_file))


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        text = getattr(error, "strerror", None) or "no text"
        raise UserError(f"--token-file {path}: expected a readable file, got: {text}") from None


def _names(text: str) -> list[str]:
    names = text.split(",")
    if not all(names):
        raise argparse.ArgumentTypeError(f"expected DEVICE,DEVICE,..., got: '{text}'")
    return names


def _counts(text: str) -> list[int]:
    if not all(part.isascii() and part.isdigit() and int(part) for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"expected numbers such as 1,2,4, got: '{text}'")
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())

"""``tensoropt-plan``: what a plan is, what two plans do otherwise, and whether one is sound."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tensoropt.runtime.support.errors import UserError, printable
from tensoropt.runtime.support.flags import Parser, answered
from tensoropt.runtime.support.version import TOOL

__all__ = ["build_parser", "main"]

_MISTAKE = 2  # as of diff(1): 1 is an answer

_DESCRIPTION = """\
Look at plans without running them: nothing but their folders is read, and no compiler is needed.
Exit status: 0 if it was shown, if two plans do the same, if a plan is sound; 1 if plans differ or
there are problems, which are printed; 2 with one line on stderr for a mistake."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    return answered(lambda: _main(argv), failure=_MISTAKE)


def _main(argv: Sequence[str] | None) -> int:
    arguments = build_parser().parse_args(argv)
    if arguments.command is None:
        raise UserError("expected a command: show, diff or validate (see tensoropt-plan --help)")
    status: int = arguments.run(arguments)
    sys.stdout.flush()
    return status


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tensoropt-plan",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=TOOL)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    show = commands.add_parser("show", help="the plan in short: costs, layouts, collectives")
    show.add_argument("plan", metavar="PLAN", type=Path, help="plan directory")
    show.set_defaults(run=_show)
    diff = commands.add_parser("diff", help="what two plans do otherwise")
    diff.add_argument("plan", metavar="A", type=Path, help="plan directory")
    diff.add_argument("other", metavar="B", type=Path, help="another one")
    diff.set_defaults(run=_diff)
    validate = commands.add_parser("validate", help="all that is wrong with a plan")
    validate.add_argument("plan", metavar="PLAN", type=Path, help="plan directory")
    validate.set_defaults(run=_validate)
    for command in (show, diff, validate):
        add = command.add_argument
        add("--format", choices=["text", "json"], default="text", help="default: text")
    return parser


def _show(arguments: argparse.Namespace) -> int:
    from tensoropt.runtime.inspection.summary import summarise
    from tensoropt.runtime.inspection.text import summary_text
    from tensoropt.runtime.plan.plan import Plan

    summary = summarise(Plan.described(arguments.plan))
    _print(arguments, summary.to_json(), lambda: summary_text(summary))
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    from tensoropt.runtime.inspection.differences import diff
    from tensoropt.runtime.inspection.text import difference_text
    from tensoropt.runtime.plan.plan import Plan

    found = diff(Plan.described(arguments.plan), Plan.described(arguments.other))
    _print(arguments, found.to_json(), lambda: difference_text(found))
    return 0 if found.is_empty else 1


def _validate(arguments: argparse.Namespace) -> int:
    from tensoropt.runtime.inspection.validation import validate

    found = validate(arguments.plan)
    rows = [{"where": one.where, "text": one.text} for one in found]
    document = {"schema": 1, "plan": str(arguments.plan), "sound": not found, "problems": rows}
    count = f"{len(found)} problem{'s' if len(found) > 1 else ''}"
    lines = [*map(str, found), f"{arguments.plan}: {count if found else 'sound'}"]
    _print(arguments, document, lambda: "\n".join(lines) + "\n")
    return 1 if found else 0


def _print(arguments: argparse.Namespace, document: object, text: Callable[[], str]) -> None:
    if arguments.format == "json":
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{printable(line)}\n" for line in text().splitlines()))


if __name__ == "__main__":
    sys.exit(main())

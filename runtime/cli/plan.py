"""``tensoropt-plan``: summaries, differences and validation of plans."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from tensoropt.runtime.support.errors import printable
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.places import Input
from tensoropt.runtime.support.version import TOOL

__all__ = ["build_parser", "main"]

_MISTAKE = 2  # as for diff(1): 1 means that plans differ

_DESCRIPTION = """\
Inspect plans without running them. Only the plan folders are read, and no compiler is needed.
Exit status: 0 if the plan was shown, the plans are equivalent, or the plan is sound; 1 if plans
differ or a plan has problems, which are printed; 2 with one line on stderr for a mistake."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(lambda: _main(argv), failure=_MISTAKE)


def _main(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    arguments = parser.parse(argv)
    if arguments.command is None:
        parser.error("expected a command: show, diff or validate")
    status: int = arguments.run(arguments)
    return status


def build_parser() -> Parser:
    parser = Parser(
        prog="tensoropt-plan",
        description=_DESCRIPTION,
    )
    parser.add_argument("--version", action="version", version=TOOL)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    show = commands.add_parser("show", help="summarise a plan: costs, layouts, collectives")
    show.add_argument("plan", metavar="PLAN", type=Input(), help="plan directory")
    show.set_defaults(run=_show)
    diff = commands.add_parser("diff", help="print the differences between two plans")
    diff.add_argument("plan", metavar="A", type=Input(), help="plan directory")
    diff.add_argument("other", metavar="B", type=Input(), help="plan directory")
    diff.set_defaults(run=_diff)
    validate = commands.add_parser("validate", help="print all problems of a plan")
    validate.add_argument("plan", metavar="PLAN", type=Input(), help="plan directory")
    validate.set_defaults(run=_validate)
    for command in (show, diff, validate):
        add = command.add_argument
        add("--format", choices=["text", "json"], default="text", help="default: text")
    return parser


def _show(arguments: argparse.Namespace) -> int:
    from tensoropt.runtime.inspection.summary import summarise
    from tensoropt.runtime.inspection.text import summary_text
    from tensoropt.runtime.plan.plan import Plan

    summary = summarise(Plan.load_description(arguments.plan))
    _print(arguments, summary.to_json(), lambda: summary_text(summary))
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    from tensoropt.runtime.inspection.differences import diff
    from tensoropt.runtime.inspection.text import difference_text
    from tensoropt.runtime.plan.plan import Plan

    found = diff(Plan.load_description(arguments.plan), Plan.load_description(arguments.other))
    _print(arguments, found.to_json(), lambda: difference_text(found))
    return 0 if found.is_empty else 1


def _validate(arguments: argparse.Namespace) -> int:
    from tensoropt.runtime.inspection.validation import validate

    found = validate(arguments.plan)
    rows = [{"where": problem.where, "text": problem.text} for problem in found]
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

"""The flags of tensoropt-opt. Nothing is imported here that takes time."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from tensoropt.compiler.comparison.registry import COMPARED
from tensoropt.compiler.planning.request import OBJECTIVES as SEARCH_OBJECTIVES
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.support.options import Interface, Option, options_of
from tensoropt.compiler.support.phases import PHASE_NAMES
from tensoropt.compiler.support.version import TOOL
from tensoropt.compiler.training.spec import (
    CROSS_ENTROPY,
    LOSSES,
    OPTIMIZERS,
    PRECISIONS,
    RECOMPUTE,
    Optimizer,
)
from tensoropt.runtime.support.flags import Parser
from tensoropt.runtime.support.places import FORMS, INPUT, Folder, Input, Output

__all__ = [
    "FORMATS",
    "OBJECTIVES",
    "add_option",
    "add_training",
    "build_parser",
    "parse_flags",
    "short_help",
]

OBJECTIVES = (*SEARCH_OBJECTIVES, "profile", "service:LEVEL")
FORMATS = ("table", "json", "csv")

_PLAN_OR_TEXT = Output(str, FORMS["mlir"], Folder.REPLACED)

_SUMMARY = """\
Spread an ONNX model over several devices: search the trade-off between memory and time, and write
one graph per rank. Without planning flags, run compiler passes over MLIR text, as mlir-opt does."""

_EPILOG = """\
examples:
  tensoropt-opt model.onnx --pareto --devices 4                print the frontier
  tensoropt-opt model.onnx --devices 8 --memory 16GiB -o plan/ write the fastest plan that fits
  tensoropt-opt model.onnx --train --loss mse:y,labels --optimizer sgd --devices 2 -o plan/
  tensoropt-opt model.onnx --train --loss mse:y,labels --objective profile --devices 8 -o family/
                                                               plans for 1, 2, 4 and 8 devices
  tensoropt-opt model.mlir -p 'insert-reshards,cse'            run passes on MLIR text
  tensoropt-opt edited.mlir --weights model.onnx -o plan/      write the plan of edited MLIR text

exit status: 0 success, 1 a mistake in the input or the flags (one line on stderr), 3 no plan fits,
130 interrupted (a search prints the frontier found so far), 141 the reader of stdout has gone.
"""

# The flags of the short help, by destination.
_COMMON = (
    "output", "devices", "mesh", "device", "memory", "pareto", "explain", "pick", "objective",
    "dim", "epsilon", "train", "loss", "report", "help_all",
)  # fmt: skip


def parse_flags(parser: Parser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the flags; ``given`` has those that differ from their defaults.

    It also has the groups with a given flag. The values are texts for errors, see
    `check_combinations`.
    """
    args = parser.parse(argv)
    given: dict[str, str] = {}
    for title, actions in parser.groups:
        for action in actions:
            value = getattr(args, action.dest, action.default)
            if value != action.default:
                flag = [value, *action.option_strings][-1]
                given |= {action.dest: flag, f"{action.dest}={value}": f"{flag} {value}"}
                given.setdefault(title, flag)
    args.given = given
    return args


class _ShortHelp(argparse.Action):
    """Prints the flags that most plans need, and names --help-all for the rest."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option: str | None = None,
    ) -> None:
        assert isinstance(parser, Parser)
        print(short_help(parser), end="")
        parser.exit()


def short_help(parser: Parser) -> str:
    """Return a help text of one screen: planning flags first, then the examples."""
    formatter = argparse.RawDescriptionHelpFormatter(parser.prog, max_help_position=30, width=100)
    formatter.add_text(f"usage: {parser.prog} MODEL.onnx [FLAG ...]     (all flags: --help-all)")
    formatter.add_text(_SUMMARY)
    actions = {action.dest: action for _, group in parser.groups for action in group}
    formatter.start_section("planning")
    formatter.add_arguments(actions[dest] for dest in _COMMON)
    formatter.end_section()
    formatter.add_text(_EPILOG)
    return formatter.format_help()


class _OutputAction(argparse.Action):
    """Stores where to write, and in ``slashed`` that it was called a folder by a slash."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option: str | None = None,
    ) -> None:
        assert isinstance(values, str), "one argument, as text"
        namespace.output = Path(values)
        namespace.slashed = values.endswith(os.sep)


def build_parser() -> Parser:
    """Return the parser of tensoropt-opt."""
    parser = Parser(
        prog="tensoropt-opt",
        description=_SUMMARY,
        epilog=_EPILOG,
        add_help=False,
    )
    parser.set_defaults(slashed=False)
    _add_general(parser)
    _add_compiler(parser.add_argument_group("compiler flags, as in mlir-opt"))
    _add_planning(parser.add_argument_group("planning"))
    add_training(parser.add_argument_group("training"))
    return parser


def _add_general(parser: Parser) -> None:
    add = parser.add_argument
    add("input", nargs="?", type=INPUT,
        help="an .onnx model, an .mlir file, or - for MLIR text on stdin")  # fmt: skip
    add("-h", "--help", action=_ShortHelp, help="show the flags for planning and exit")
    add("--help-all", dest="help_all", action="help", help="show all flags and exit")
    add("-o", dest="output", action=_OutputAction, type=_PLAN_OR_TEXT, metavar="PATH",
        help="write the plan to this folder (with --objective profile, the family of plans), or "
        "MLIR to this file: a name with a suffix, or -")  # fmt: skip
    add("--dim", action="append", default=[], metavar="NAME=SIZE",
        help="fix a symbolic dimension of the model's inputs, or give its range: past=1..4096, "
        "batch=8..64:8; x:0 names an unnamed dimension of x (repeatable)")  # fmt: skip
    add("--weights", type=Input(), metavar="MODEL.onnx",
        help="the model that the MLIR text was imported from, for the plan's weights")  # fmt: skip
    add("--rules", type=Input(), metavar="FILE.toml",
        help="sharding rules for more operators, in any domain")  # fmt: skip
    add("--check-rules", action="store_true",
        help="check the rules of --rules, and edited rules, against ONNX Runtime: every strategy "
        "on 2, 4 and 2x2 simulated ranks")  # fmt: skip
    add("--check-annotations", action="store_true",
        help="check the model's multi-device annotations")  # fmt: skip
    add("--int8-caches", type=Output(form=FORMS["onnx"]), metavar="FILE.onnx",
        help="write the decoder with caches of 8-bit integers, and print the effect on "
        "--sample")  # fmt: skip
    add("--sample", type=Input(), metavar="FILE",
        help="with --int8-caches, a text that the model should know, or a .json list of "
        "tokens")  # fmt: skip
    add("--custom-ops", action="append", default=[], type=Input(), metavar="LIB.so",
        help="with --check-rules, a library of custom operators (repeatable)")  # fmt: skip
    add("--progress", action="store_true",
        help="report progress on stderr even if it is no terminal")  # fmt: skip
    add("--format", metavar="FORM", help=f"report format: {', '.join(FORMATS)}")
    add("--version", action="version", version=TOOL)
    add("--list-passes", action="store_true", help="list the passes with their summaries")


def _add_compiler(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("-p", "--pass-pipeline", metavar="TEXT", help="run passes: 'a,b{option=value}'")
    add("--emit", metavar="PHASE", help=f"print the IR after a phase: {', '.join(PHASE_NAMES)}")
    add("--split-input-file", action="store_true",
        help="process the parts between '// -----' separately")  # fmt: skip
    add("--verify-diagnostics", action="store_true",
        help="compare diagnostics with the 'expected-error {{...}}' comments")  # fmt: skip
    add("--mlir-print-ir-after-all", action="store_true", help="print the IR after each pass")
    add("--mlir-print-ir-after", action="append", default=[], metavar="PASS",
        help="print the IR after PASS (repeatable)")  # fmt: skip
    add("--mlir-timing", action="store_true", help="print the time of each pass")


def add_option(group: argparse._ActionsContainer, option: Option, help: str | None = None) -> None:
    """Add the flag of ``option``; ``help`` replaces its help text."""
    group.add_argument(
        Interface.COMMAND.name_of(option.flag or option.name),
        action="append" if option.repeats else "store",
        default=[] if option.repeats else None,
        metavar=option.metavar,
        type=option.place or str,
        help=(help or option.help_in(Interface.COMMAND)).replace("%", "%%"),
    )


def _add_planning(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--pareto", action="store_true", help="print the frontier of memory and time")
    add("--explain", action="store_true",
        help="explain the plan: splits, collectives and their cause, time and memory")  # fmt: skip
    for option in options_of(Request).values():
        add_option(group, option)
    add("--pins", action="append", default=[], type=Input(), metavar="FILE",
        help="read pins from a .toml file, or from the annotations of an .onnx model "
        "(repeatable)")  # fmt: skip
    add("--also", action="append", default=[], type=Input(), metavar="MODEL.onnx",
        help="another form of the model, such as one of --int8-caches, on the same frontier "
        "(repeatable)")  # fmt: skip
    add("--kubernetes", type=Output(form=FORMS["manifest"]), metavar="FILE",
        help="with --objective service, write a manifest of the replicas that kubectl "
        "applies")  # fmt: skip
    add("--with-leanest", action="store_true",
        help="with --objective profile -o, also write the leanest plan of each number of "
        "devices, as N-lean")  # fmt: skip
    add("--compare", nargs="?", const=",".join(COMPARED), metavar="NAMES",
        help="compare search methods, separated by commas (default %(const)s)")  # fmt: skip
    add("--annotations", type=Output(form=FORMS["onnx"]), metavar="FILE.onnx",
        help="write the model with the plan as ONNX multi-device annotations")  # fmt: skip
    add("--dtensor", type=Output(form=FORMS["placements"]), metavar="FILE.json",
        help="write the placements of parameters for PyTorch's DTensor")  # fmt: skip
    add("--target", metavar="NAME",
        help="the runtime of the graphs that -o writes: onnxruntime (default) or "
        "tensorrt")  # fmt: skip
    add("--plot", type=Output(form=FORMS["picture"]), metavar="FILE",
        help="draw the report, a frontier with all its points, as .png or .svg")  # fmt: skip
    add("--netron", type=Output(form=FORMS["onnx"]), metavar="FILE.onnx",
        help="write the model with each node's layouts and costs as metadata, for Netron"
    )  # fmt: skip
    add("--report", type=Output(form=FORMS["page"]), metavar="FILE.html",
        help="write a page about the frontier and the plan: graph, timeline, memory, "
        "collectives")  # fmt: skip


def add_training(group: argparse._ArgumentGroup) -> None:
    """Add the flags that describe a training step to ``group``."""
    add, default = group.add_argument, Optimizer("adamw")
    add("--train", action="store_true",
        help="plan the training step; tensoropt-run takes the learning rate")  # fmt: skip
    add(
        "--loss",
        metavar="LOSS",
        help=f"the loss: {', '.join(LOSSES)}, as softmax-cross-entropy:OUTPUT,LABELS or "
        "output:OUTPUT",
    )
    add("--ignore-index", metavar="I",
        help=f"label that does not count in {CROSS_ENTROPY} (default -100)")  # fmt: skip
    add("--label-smoothing", metavar="S", help=f"of {CROSS_ENTROPY}, from 0 to 1 (default 0)")
    add("--class-weights", type=INPUT, metavar="W,...",
        help=f"of {CROSS_ENTROPY}: a number per class, or a .npy file of them")  # fmt: skip
    add("--optimizer", metavar="NAME", help=f"{', '.join(OPTIMIZERS)} (default {default.name})")
    add("--momentum", metavar="M", help=f"for --optimizer momentum (default {default.momentum})")
    add(
        "--betas",
        metavar="B1,B2",
        help=f"decay of Adam's moments (default {default.beta1},{default.beta2})",
    )
    add("--adam-epsilon", metavar="E", help=f"Adam's epsilon (default {default.epsilon})")
    add("--weight-decay", metavar="D", help=f"weight decay (default {default.weight_decay})")
    add("--group", action="append", default=[], dest="groups", metavar="PATTERN,...:OPTIONS",
        help="options of parameters: weight-decay=D, rate-factor=F of the learning rate, as in "
        "'*.bias,*norm*:weight-decay=0' (repeatable)")  # fmt: skip
    add("--clip-norm", metavar="X", help="clip the global norm of the gradients")
    add(
        "--micro-batches",
        metavar="K",
        help="accumulate the gradients of K batches per step (default 1); auto or 1..8 splits the "
        "model's batch into the number that the search finds best",
    )
    add(
        "--precision",
        metavar="TYPE",
        help=f"type of the forward and backward pass: {', '.join(PRECISIONS)} (default float32)",
    )
    add(
        "--recompute",
        metavar="WHAT",
        help="activations to recompute in the backward pass: "
        f"{', '.join(RECOMPUTE)}, or auto, which searches all of them (default)",
    )
    add("--freeze", action="append", default=[], metavar="PATTERN",
        help="do not train these parameters, such as 'embed*' (repeatable)")  # fmt: skip
    add("--freeze-rows", action="append", default=[], metavar="NAME=ROW,...",
        help="do not train these rows of a weight, as padding_idx does (repeatable)")  # fmt: skip
    add("--unfreeze", action="append", default=[], metavar="PATTERN",
        help="train these tables and masks, which are frozen by default (repeatable)")  # fmt: skip

"""The flags of tensoropt-opt. Nothing is imported here that takes time."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tensoropt.compiler.search.frontier.request import (
    ANSWER_S,
    DEFAULT_DEVICES,
    SEARCHES,
)
from tensoropt.compiler.search.methods.registry import COMPARED, takers
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.compiler.support.version import TOOL
from tensoropt.compiler.training.spec import LOSSES, OPTIMIZERS, PRECISIONS, RECOMPUTE, Optimizer

__all__ = [
    "EMIT",
    "Parser",
    "add_training",
    "build_parser",
    "wants_plan",
    "wants_planning",
]

EMIT = ("import", "prepare", "train", "rules", "search", "reshard", "partition")
OBJECTIVES = ("time", "memory", "devices", "profile")
FORMATS = ("table", "json", "csv")

_EPILOG = """\
exit status: 0 done, 1 a mistake in the input or the flags (one line on stderr says which),
130 interrupted (a search prints what it has found), 141 the reader of stdout went away.

  tensoropt-opt model.onnx                                   print the imported MLIR
  tensoropt-opt model.onnx --pareto --devices 4              print the frontier
  tensoropt-opt model.onnx --devices 8 --memory 16GiB -o plan/   write the fastest plan that fits
  tensoropt-opt model.onnx --train --loss mse:y,labels --optimizer sgd --devices 2 -o plan/
                                                             write a plan for training
  tensoropt-opt model.onnx --train --loss mse:y,labels --objective profile --devices 8 -o family/
                                                             the plans of 1, 2, 4 and 8 devices
  tensoropt-opt model.mlir -p 'insert-reshards,cse'          run passes over a text
  tensoropt-opt edited.mlir --weights model.onnx -o plan/    write the plan of a text of any phase
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours: one line, exit status 1."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")

    def parse(self, argv: list[str] | None) -> argparse.Namespace:
        """Return the flags; an unknown one is answered with the nearest that exists."""
        args, rest = self.parse_known_args(argv)
        if rest:
            flags = [flag for action in self._actions for flag in action.option_strings]
            near = did_you_mean(rest[0].split("=")[0], flags)
            self.error(f"unknown argument '{rest[0]}'{near}")
        return args


class _Output(argparse.Action):
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
        description="Spread an ONNX model over several devices: the memory/time frontier, "
        "and one graph per rank. Or run compiler passes over MLIR text.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(slashed=False)
    _add_general(parser)
    _add_compiler(parser.add_argument_group("compiler flags, as in mlir-opt"))
    _add_planning(parser.add_argument_group("planning"))
    add_training(parser.add_argument_group("training"))
    return parser


def wants_planning(args: argparse.Namespace) -> bool:
    """Say whether a flag was given that only makes sense with devices to plan for."""
    names = ("devices", "mesh", "device", "memory", "objective", "pick", "plot", "search")
    more = (
        "report",
        "netron",
        "seed",
        "epsilon",
        "strategies",
        "search_time",
        "search_memory",
        "compare",
        "overlap",
    )
    given = [getattr(args, name) for name in (*names, *more)]
    some = args.pareto or args.explain or args.with_leanest
    some = some or args.pin or args.forbid or args.pins
    given += [args.annotations, args.dtensor, args.target]
    return bool(some) or any(flag is not None for flag in given)


def wants_plan(args: argparse.Namespace) -> bool:
    """Say whether a model is to become a folder, which a plan alone is.

    A new name without a suffix is that of a folder. Text becomes one with the weights.
    """
    if args.output is None or args.emit or args.pass_pipeline is not None:
        return False
    if args.weights is not None:
        return True
    path: Path = args.output
    bare = not path.suffix and not path.exists() and str(path) != "-"
    return args.input.endswith(".onnx") and (args.slashed or path.is_dir() or bare)


def _add_general(parser: Parser) -> None:
    add = parser.add_argument
    add("input", nargs="?", help="an .onnx model, an .mlir file, or - for MLIR text on stdin")
    add("-o", dest="output", action=_Output, metavar="PATH",
        help="the folder of the plan, or of the family of --objective profile, or a file for "
        "MLIR: a name with a suffix, or -")  # fmt: skip
    add("--dim", action="append", default=[], metavar="NAME=SIZE",
        help="fix a symbolic dimension of the model's inputs, or say what sizes it may have: "
        "past=1..4096, batch=8..64:8; x:0 is an unnamed one of x (repeatable)")  # fmt: skip
    add("--weights", type=Path, metavar="MODEL.onnx",
        help="the model that MLIR text was made of: the plan is given its weights")  # fmt: skip
    add("--rules", type=Path, metavar="FILE.toml",
        help="how operators may be split, those of other domains too")  # fmt: skip
    add("--check-rules", action="store_true",
        help="prove the rules that are not ours against ONNX Runtime")  # fmt: skip
    add("--check-annotations", action="store_true",
        help="say whether the multi-device annotations of a model are valid")  # fmt: skip
    add("--custom-ops", action="append", default=[], type=Path, metavar="LIB.so",
        help="with --check-rules, a library of the operators (repeatable)")  # fmt: skip
    add("--version", action="version", version=TOOL)
    add("--list-passes", action="store_true", help="list the passes and what they do")


def _add_compiler(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("-p", "--pass-pipeline", metavar="TEXT", help="passes to run: 'a,b{option=value}'")
    add("--emit", metavar="PHASE", help=f"print the IR after a phase: {', '.join(EMIT)}")
    add(
        "--split-input-file", action="store_true", help="handle parts between '// -----' separately"
    )
    add("--verify-diagnostics", action="store_true",
        help="compare diagnostics with the 'expected-error {{...}}' comments")  # fmt: skip
    add("--mlir-print-ir-after-all", action="store_true", help="print the IR after each pass")
    add("--mlir-print-ir-after", action="append", default=[], metavar="PASS",
        help="print the IR after PASS (repeatable)")  # fmt: skip
    add("--mlir-timing", action="store_true", help="print the time of each pass")


def _add_planning(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--pareto", action="store_true", help="print the frontier of memory and time")
    add("--explain", action="store_true",
        help="say what the plan does: who is split how, what is sent and why, what takes time and "
        "memory")  # fmt: skip
    add("--devices", metavar="N", help=f"number of devices (default {DEFAULT_DEVICES})")
    add("--mesh", metavar="AxB", help="one mesh such as 2x4, instead of all that --devices allows")
    add("--device", action="append", metavar="NAME|FILE.toml",
        help="description of one device (default cpu); repeatable: what any of the files knows "
        "counts, and of what several know the first")  # fmt: skip
    add("--memory", metavar="SIZE", help="memory of one device, such as 16GiB")
    add("--objective", metavar="WHAT", help=f"what to look for: {', '.join(OBJECTIVES)}")
    add("--with-leanest", action="store_true",
        help="with --objective profile -o, the leanest plan of each count too, N-lean")  # fmt: skip
    add("--search", metavar="NAME", help=f"search engine: {', '.join(SEARCHES)} (default ft)")
    add("--strategies", type=Path, metavar="PLAN.json",
        help="take the strategies of a plan, edited or not, instead of searching")  # fmt: skip
    add("--pin", action="append", default=[], metavar="WHAT=HOW",
        help="what a tensor or node must be, as 'w*=S(0)@x' or 'node:/attn/*=heads' "
        "(repeatable)")  # fmt: skip
    add("--forbid", action="append", default=[], metavar="WHAT=HOW",
        help="what a tensor or node may not be (repeatable)")  # fmt: skip
    add("--pins", action="append", default=[], type=Path, metavar="FILE",
        help="pins of a .toml file, or of the annotations of an .onnx model "
        "(repeatable)")  # fmt: skip
    add(
        "--search-time",
        metavar="S",
        help=f"seconds for --search {' or '.join(takers('time_limit_s'))}, all meshes together "
        f"(default, without --epsilon: an answer {ANSWER_S:g} s after the start)",
    )
    add("--search-memory", metavar="SIZE",
        help="memory that the search may take, such as 4GiB (default a quarter of this "
        "machine's)")  # fmt: skip
    add("--compare", nargs="?", const=",".join(COMPARED), metavar="NAMES",
        help="compare search engines: NAMES separated by commas (default %(const)s)")  # fmt: skip
    add("--seed", metavar="K", help=f"seed of --search {', '.join(takers('seed'))} (default 0)")
    add("--epsilon", metavar="E",
        help="slack of the frontier: 0 is exact, 0.05 within 5%%; the search then takes "
        "as long as it needs")  # fmt: skip
    add("--pick", metavar="WHICH", help="the point to take: an index, fastest, leanest or knee")
    add("--progress", action="store_true",
        help="report progress on stderr even if that is no terminal")  # fmt: skip
    add("--format", metavar="FORM", help=f"form of the report: {', '.join(FORMATS)}")
    add("--annotations", type=Path, metavar="FILE.onnx",
        help="write the model with the plan as ONNX's multi-device annotations")  # fmt: skip
    add("--dtensor", type=Path, metavar="FILE.json",
        help="write the placements of parameters for PyTorch's DTensor")  # fmt: skip
    add("--target", metavar="NAME",
        help="what runs the graphs that -o writes: onnxruntime (default) or "
        "tensorrt")  # fmt: skip
    add("--overlap", metavar="WHICH",
        help="let collectives run beside operators where that gains: auto (default) or "
        "off")  # fmt: skip
    add("--plot", type=Path, metavar="FILE",
        help="draw what is printed, a frontier with all its points, into a .png or .svg "
        "file")  # fmt: skip
    add("--netron", type=Path, metavar="FILE.onnx",
        help="write the model with what the plan does to each node as metadata, which Netron "
        "shows")  # fmt: skip
    add("--report", type=Path, metavar="FILE.html",
        help="write a page about the frontier and the plan: graph, timeline, memory, "
        "collectives")  # fmt: skip


def add_training(group: argparse._ArgumentGroup) -> None:
    add, default = group.add_argument, Optimizer("adamw")
    add("--train", action="store_true",
        help="plan the training step; the learning rate is given to tensoropt-run")  # fmt: skip
    add(
        "--loss",
        metavar="LOSS",
        help=f"what to minimise: {', '.join(LOSSES)}, as softmax-cross-entropy:OUTPUT,LABELS or "
        "output:OUTPUT",
    )
    add("--optimizer", metavar="NAME", help=f"{', '.join(OPTIMIZERS)} (default {default.name})")
    add("--momentum", metavar="M", help=f"of --optimizer momentum (default {default.momentum})")
    add(
        "--betas",
        metavar="B1,B2",
        help=f"decay of the moments of Adam (default {default.beta1},{default.beta2})",
    )
    add("--adam-epsilon", metavar="E", help=f"of Adam (default {default.epsilon})")
    add("--weight-decay", metavar="D", help=f"of the optimizer (default {default.weight_decay})")
    add("--clip-norm", metavar="X", help="bound on the norm of all gradients together")
    add(
        "--micro-batches",
        metavar="K",
        help="batches whose gradients make one step (default 1); "
        "auto or 1..8 cuts the batch of the model in as many as the search finds best",
    )
    add(
        "--precision",
        metavar="TYPE",
        help=f"of the forward and backward pass: {', '.join(PRECISIONS)} (default float32)",
    )
    add(
        "--recompute",
        metavar="WHAT",
        help="activations to recompute in the backward pass: "
        f"{', '.join(RECOMPUTE)}, or auto, which searches them all (default)",
    )
    add("--freeze", action="append", default=[], metavar="PATTERN",
        help="parameters not to train, by name such as 'embed*' (repeatable)")  # fmt: skip
    add("--freeze-rows", action="append", default=[], metavar="NAME=ROW,...",
        help="rows of a weight without a gradient, as padding_idx (repeatable)")  # fmt: skip
    add("--unfreeze", action="append", default=[], metavar="PATTERN",
        help="tables and masks to train, which otherwise are not (repeatable)")  # fmt: skip

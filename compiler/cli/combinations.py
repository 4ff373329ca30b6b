"""The combinations of flags that tensoropt-opt refuses."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tensoropt.compiler.planning import request
from tensoropt.compiler.planning.service import is_service
from tensoropt.compiler.support.options import Combination
from tensoropt.compiler.support.phases import PHASE_NAMES

__all__ = ["COMBINATIONS", "PLAN", "TRAINING", "spelled_flags"]

_MODEL = "an .onnx model"
PLAN = "a plan"
"""Flags of planning or training, or a folder as output."""
_PLAN_FOLDER, _SLASHED = "a folder for a plan", "a path that ends in a slash"
_EARLY = "a phase before the search"
_PROFILE = "objective=profile"
_SERVICE = "a service level"

TRAINING = (
    Combination(
        ["training"], "{given} belongs to training, expected --train as well", needs=["train"]
    ),
    Combination(
        ["train"],
        "{given} needs --loss, such as softmax-cross-entropy:OUTPUT,LABELS, mse:OUTPUT,LABELS "
        "or output:NAME",
        needs=["loss"],
    ),
)

COMBINATIONS = (
    *TRAINING,
    Combination(
        ["emit=train"],
        "{given} prints the step of training, expected --train as well",
        needs=["train"],
    ),
    Combination(
        ["pass_pipeline"],
        "{given} runs passes alone, expected it without {other}",
        excludes=["emit", PLAN],
    ),
    Combination(
        ["custom_ops"],
        "{given} belongs to --check-rules, or to tensoropt-run",
        needs=["check_rules"],
    ),
    Combination(
        ["check_rules"],
        "{given} plans nothing, expected no flags of planning or passes",
        excludes=[PLAN, "emit", "pass_pipeline"],
    ),
    Combination(
        ["int8_caches"],
        "{given} plans nothing, expected no flags of planning or passes",
        excludes=[PLAN, "emit", "pass_pipeline"],
    ),
    Combination(["int8_caches"], "{given} needs an .onnx model, got: '{input}'", needs=[_MODEL]),
    Combination(["int8_caches"], "{given} measures scales, expected --sample", needs=["sample"]),
    Combination(
        ["sample"], "{given} is for scales of caches, expected --int8-caches", needs=["int8_caches"]
    ),
    Combination(
        ["check_annotations"],
        "{given} plans nothing, expected the model alone",
        excludes=[PLAN, "emit", "pass_pipeline"],
    ),
    Combination(
        ["check_annotations"], "{given} needs an .onnx model, got: '{input}'", needs=[_MODEL]
    ),
    Combination(
        ["weights"],
        "{given} belongs to MLIR text, expected no such flag with {input}",
        excludes=[_MODEL],
    ),
    Combination(
        ["weights"],
        "{given} belongs to a plan of MLIR text, expected -o with its folder",
        needs=[_PLAN_FOLDER],
    ),
    Combination(
        ["split_input_file", "verify_diagnostics"],
        "{given} needs MLIR text and passes, got: '{input}'",
        excludes=[PLAN, "emit", _MODEL],
    ),
    Combination(
        ["dim"], "{given} needs an .onnx model, got: '{input}'", needs=[PLAN, "emit", _MODEL]
    ),
    Combination([_SLASHED], "{given}: expected a file for MLIR text, got: a folder", needs=[PLAN]),
    Combination(
        ["format"],
        "{given} needs a report, expected --pareto or --objective profile as well",
        needs=[PLAN],
    ),
    Combination(
        [_EARLY],
        "{given} comes before the search, expected no planning flags",
        excludes=["planning"],
    ),
    Combination(
        ["compare"],
        "{given} prints a table of searches, expected no {other}",
        excludes=[
            *("output", "pick", "search", "objective", "strategies", "pareto", "explain"),
            *("report", "annotations", "dtensor", "netron", "target"),
        ],
    ),
    Combination(
        ["annotations", "dtensor", "target", "report", "netron", "explain"],
        "{given} is about one plan, expected no {other}",
        excludes=[_PROFILE],
    ),
    Combination(
        ["objective=devices", _PROFILE],
        "{given} tries many meshes, expected no {other}",
        excludes=["mesh"],
    ),
    Combination(
        ["objective=memory", _PROFILE],
        "{given} picks by itself, expected no {other}",
        excludes=["pick"],
    ),
    Combination(
        ["with_leanest"],
        "{given} belongs to a family, expected --objective profile and -o",
        needs=[f"{_PROFILE} & output"],
    ),
    Combination(
        [_SERVICE],
        "{given} picks by itself, expected no {other}",
        excludes=[
            *("mesh", "stages", "strategies", "pick", "pareto", "explain", "report", "plot"),
            *("netron", "annotations", "dtensor", "target", "compare", "train"),
        ],
    ),
    Combination([_SERVICE], "{given} needs an .onnx model, got: '{input}'", needs=[_MODEL]),
    Combination(
        ["kubernetes"],
        "{given} is about a service, expected --objective service:LEVEL",
        needs=[_SERVICE],
    ),
    Combination(["also"], "{given} needs an .onnx model, got: '{input}'", needs=[_MODEL]),
    Combination(
        ["also"],
        "{given} is for one frontier of several models, expected no {other}",
        excludes=["objective=devices", _PROFILE, "compare", "train", "strategies", "emit"],
    ),
    Combination(
        ["explain"], "{given}: expected --format table or json, got: csv", excludes=["format=csv"]
    ),
    Combination(
        ["format=json"],
        "{given} is of one report, expected either --explain or --pareto",
        excludes=["explain & pareto"],
    ),
    *request.COMBINATIONS,
    Combination(
        ["annotations", "dtensor"],
        "{given} is about a model, expected no {other}",
        excludes=["train"],
    ),
    Combination(
        ["annotations", "netron"],
        "{given}: expected an .onnx input or --weights MODEL.onnx, got: '{input}'",
        needs=[_MODEL, "weights"],
    ),
    Combination(["target"], "{given} is about what -o writes, expected -o", needs=["output"]),
    Combination(
        ["target=tensorrt"], "{given}: runs no training, expected no {other}", excludes=["train"]
    ),
    Combination(
        ["overlap=auto"],
        "--overlap: expected off with {other}, got: 'auto'",
        excludes=["target=tensorrt"],
    ),
)


def spelled_flags(args: argparse.Namespace) -> dict[str, str]:
    """Return the given flags and the kinds of input and output, with their text in errors."""
    spelled = dict(args.given)
    if args.input.endswith(".onnx"):
        spelled[_MODEL] = args.input
    if _writes_plan(args):
        spelled[_PLAN_FOLDER] = f"-o {args.output}"
    if "planning" in spelled or args.train or _writes_plan(args):
        spelled[PLAN] = "planning flags"
    if is_service(args.objective):
        spelled[_SERVICE] = "--objective service"
    if args.slashed:
        spelled[_SLASHED] = f"-o {args.output}{os.sep}"
    if args.emit in PHASE_NAMES[: PHASE_NAMES.index("search")]:
        spelled[_EARLY] = f"--emit {args.emit}"
    return spelled


def _writes_plan(args: argparse.Namespace) -> bool:
    """Return whether the output is a folder, which only a plan is.

    A new name without a suffix is the name of a folder. With ``--weights``, text becomes a plan.
    """
    if args.output is None or args.emit or args.pass_pipeline is not None:
        return False
    if args.weights is not None:
        return True
    path: Path = args.output
    bare = not path.suffix and not path.exists() and str(path) != "-"
    return args.input.endswith(".onnx") and (args.slashed or path.is_dir() or bare)

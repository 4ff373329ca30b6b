"""The planning flags of tensoropt-opt, turned into a request."""

from __future__ import annotations

import argparse
from dataclasses import replace

from tensoropt.compiler.api.request import make_request
from tensoropt.compiler.api.training import step_of
from tensoropt.compiler.cli.arguments import FORMATS, OBJECTIVES
from tensoropt.compiler.cli.training_flags import read_training
from tensoropt.compiler.planning.request import SEARCHES, Request
from tensoropt.compiler.planning.service import is_service
from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.support.options import Interface, options_of
from tensoropt.compiler.training.micro_batches import are_several
from tensoropt.passes.build_training_step import BuildTrainingStepPass

__all__ = ["compared_searches", "read_request", "read_step"]


_ONE_MESH = ("objective", "compare", "netron")
"""Flags that pipelines do not go with, so that none are searched by default."""
_WHOLE = ("compare", "netron", "annotations", "dtensor")
"""Flags about a model on one mesh."""


def read_request(args: argparse.Namespace) -> Request:
    """Return the request of the flags; raises :class:`UserError` before any search."""
    if args.objective is not None and not is_service(args.objective):
        check_known("--objective: unknown objective", args.objective, OBJECTIVES)
    if args.format is not None:
        check_known("--format: unknown form", args.format, FORMATS)
    options = options_of(Request).items()
    given = {name: getattr(args, option.flag or name) for name, option in options}
    given["pins"] = [*args.pin, *args.pins]
    given["model"] = args.input if args.input.endswith(".onnx") else args.weights
    if args.objective == "profile" or is_service(args.objective):
        given["objective"] = None
    several = args.train and are_several(args.micro_batches or "1")
    given["accumulates"] = several and not any(args.given.get(name) for name in _ONE_MESH)
    if args.target not in (None, "onnxruntime"):  # other runtimes have no overlap
        given["overlap"] = "off"
    request = make_request(given, Interface.COMMAND, compared_searches(args))
    is_whole = any(args.given.get(name) for name in _WHOLE)
    return replace(request, may_cut=False) if is_whole else request


def read_step(args: argparse.Namespace, request: Request | None) -> BuildTrainingStepPass | None:
    """Return the pass that builds the training step of the flags, None without ``--train``."""
    return step_of(read_training(args), request, compared=args.compare is not None)


def compared_searches(args: argparse.Namespace) -> list[str]:
    """Return the distinct names in ``--compare``; empty without the flag."""
    if args.compare is None:
        return []
    names = list(dict.fromkeys(name.strip() for name in args.compare.split(",")))
    for name in names:
        check_known("--compare: unknown search", name, SEARCHES)
    return names

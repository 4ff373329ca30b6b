"""The planning flags of tensoropt-opt, checked and turned into a request."""

from __future__ import annotations

import argparse

from tensoropt.compiler.api.request import make_request
from tensoropt.compiler.api.training import step_of
from tensoropt.compiler.cli.arguments import FORMATS, OBJECTIVES
from tensoropt.compiler.cli.training_flags import read_training
from tensoropt.compiler.search.frontier.points import check_pick
from tensoropt.compiler.search.frontier.request import Request
from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.support.errors import UserError
from tensoropt.passes.build_training_step import BuildTrainingStepPass

__all__ = ["compared_searches", "read_request", "read_step"]


def read_request(args: argparse.Namespace) -> Request:
    """Return the request of the flags; raises :class:`UserError` before any search."""
    objective = "time" if args.objective is None else args.objective
    check_known("--objective: unknown objective", objective, OBJECTIVES)
    check_known("--format: unknown form", "table" if args.format is None else args.format, FORMATS)
    searches = compared_searches(args)
    _check_objective(args)
    _check_explained(args)
    return make_request(
        devices=args.devices,
        mesh=args.mesh,
        device=args.device,
        memory=args.memory,
        objective="time" if args.objective == "profile" else args.objective,
        search=args.search,
        seed=args.seed,
        epsilon=args.epsilon,
        resolution=args.resolution,
        search_time=args.search_time,
        search_memory=args.search_memory,
        strategies=args.strategies,
        pick=args.pick,
        overlap=_overlap(args),
        pins=[*args.pin, *args.pins],
        forbid=args.forbid,
        model=_model(args),
        compared=searches,
    )


def read_step(args: argparse.Namespace, request: Request | None) -> BuildTrainingStepPass | None:
    """Return the pass that builds the training step of the flags, None without ``--train``."""
    return step_of(read_training(args), request, compared=args.compare is not None)


def compared_searches(args: argparse.Namespace) -> list[str]:
    """Return the distinct names in ``--compare``; empty without the flag."""
    if args.compare is None:
        return []
    for flag in (
        "output",
        "pick",
        "search",
        "objective",
        "strategies",
        "pareto",
        "explain",
        "report",
        "annotations",
        "dtensor",
        "netron",
        "target",
    ):
        if getattr(args, flag):
            name = "-o" if flag == "output" else f"--{flag}"
            raise UserError(f"--compare prints a table of searches, expected no {name}")
    return list(dict.fromkeys(name.strip() for name in args.compare.split(",")))


def _overlap(args: argparse.Namespace) -> str | None:
    """Return the value of ``--overlap``; off for TensorRT, which has no overlap."""
    if args.target in (None, "onnxruntime"):
        return None if args.overlap is None else str(args.overlap)
    if args.overlap == "auto":
        raise UserError(f"--overlap: expected off with --target {args.target}, got: 'auto'")
    return "off"


def _model(args: argparse.Namespace) -> str | None:
    """Return the model file, which has names that text lacks."""
    if args.input.endswith(".onnx"):
        return str(args.input)
    return None if args.weights is None else str(args.weights)


def _check_explained(args: argparse.Namespace) -> None:
    for flag in ("report", "netron"):
        if getattr(args, flag) is not None and args.objective == "profile":
            raise UserError(f"--{flag} is about one plan, expected no --objective profile")
    if not args.explain:
        return
    if args.objective == "profile":
        raise UserError("--explain is about one plan, expected no --objective profile")
    if args.format == "csv":
        raise UserError("--explain: expected --format table or json, got: csv")
    if args.pareto and args.format == "json":
        raise UserError("--format json is of one report, expected either --explain or --pareto")


def _check_objective(args: argparse.Namespace) -> None:
    for flag in ("annotations", "dtensor", "target"):
        if args.objective == "profile" and getattr(args, flag) is not None:
            raise UserError(f"--{flag} is about one plan, expected no --objective profile")
    if args.objective == "devices" and args.memory is None:
        raise UserError("--objective devices needs --memory SIZE, the memory of one device")
    if args.objective in ("devices", "profile") and args.mesh is not None:
        raise UserError(f"--objective {args.objective} tries many meshes, expected no --mesh")
    if args.with_leanest and (args.objective != "profile" or args.output is None):
        raise UserError("--with-leanest belongs to a family, expected --objective profile and -o")
    if args.objective in ("memory", "profile") and args.pick is not None:
        raise UserError(f"--objective {args.objective} picks by itself, expected no --pick")
    if args.pick is not None:
        check_pick(args.pick)

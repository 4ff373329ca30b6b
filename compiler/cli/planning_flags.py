"""The planning flags of tensoropt-opt, checked and turned into a request."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tensoropt.compiler.cli.arguments import FORMATS, OBJECTIVES
from tensoropt.compiler.cli.training_flags import read_training
from tensoropt.compiler.layout.mesh import Mesh, parse_mesh
from tensoropt.compiler.search.frontier.pins import read_pins_file
from tensoropt.compiler.search.frontier.points import mesh_name
from tensoropt.compiler.search.frontier.request import (
    DEFAULT_DEVICES,
    MAX_DEVICES,
    SEARCHES,
    Request,
)
from tensoropt.compiler.search.methods.registry import takers
from tensoropt.compiler.support.choices import check_known, whole_number
from tensoropt.compiler.support.errors import UserError
from tensoropt.passes.build_training_step import BuildTrainingStepPass

_MAX_AXES = MAX_DEVICES.bit_length() - 1

__all__ = ["compared", "read_request", "read_step"]


def read_request(args: argparse.Namespace) -> Request:
    """Return what the flags ask for; raises :class:`UserError` before anything is searched."""
    check_known("--objective: unknown objective", _or(args.objective, "time"), OBJECTIVES)
    check_known("--format: unknown form", _or(args.format, "table"), FORMATS)
    searches = compared(args) or [_or(args.search, "ft")]
    for search in searches:
        flag = "--search" if args.compare is None else "--compare"
        check_known(f"{flag}: unknown search", search, SEARCHES)
    _check_objective(args)
    _check_explained(args)
    plan = _given_plan(args)
    mesh = mesh_name(plan["mesh"]["shape"]) if plan else args.mesh
    devices = DEFAULT_DEVICES if plan else _devices(args)
    pins, forbidden = _pins(args)
    request = Request(
        devices=devices,
        mesh=mesh,
        device=_or(args.device, "cpu"),
        memory=args.memory,
        objective=_or(args.objective, "time") if args.objective != "profile" else "time",
        search=searches[0],
        seed=_seed(args, searches),
        epsilon=_epsilon(args, searches),
        search_time=_search_time(args, searches),
        strategies=None if args.strategies is None else str(args.strategies),
        pick=args.pick,
        pins=pins,
        forbid=forbidden,
        model=_model(args),
    )
    # what they refuse, they refuse now
    _ = request.description, request.memory_bytes, request.read_pins
    return request


def read_step(args: argparse.Namespace, request: Request | None) -> BuildTrainingStepPass | None:
    """Return the pass that builds the training step which the flags ask for, if they do."""
    plan = None if request is None else request.given_plan
    return read_training(args, _given_way(args, plan))


def compared(args: argparse.Namespace) -> list[str]:
    """Return the names in ``--compare``, each once; none where it was not given."""
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
    ):
        if getattr(args, flag):
            name = "-o" if flag == "output" else f"--{flag}"
            raise UserError(f"--compare prints a table of searches, expected no {name}")
    return list(dict.fromkeys(name.strip() for name in args.compare.split(",")))


def _pins(args: argparse.Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what is pinned and what is forbidden, by flags and by files."""
    pins, forbidden = tuple(args.pin), tuple(args.forbid)
    for path in args.pins:
        more, less = read_pins_file(path)
        pins, forbidden = pins + more, forbidden + less
    return pins, forbidden


def _model(args: argparse.Namespace) -> str | None:
    """Return the model file, which knows names that text does not have."""
    if args.input.endswith(".onnx"):
        return str(args.input)
    return None if args.weights is None else str(args.weights)


def _given_plan(args: argparse.Namespace) -> Mapping[str, Any] | None:
    """Return the plan.json of ``--strategies``, which leaves nothing to search."""
    if args.strategies is None:
        return None
    for name in (
        "devices",
        "mesh",
        "search",
        "seed",
        "epsilon",
        "search_time",
        "pick",
        "objective",
    ):
        if getattr(args, name) is not None:
            raise UserError(f"--strategies fixes the plan, expected no --{name.replace('_', '-')}")
    for name in ("pin", "forbid", "pins"):
        if getattr(args, name):
            raise UserError(f"--strategies fixes the plan, expected no --{name}")
    from tensoropt.compiler.search.frontier.given_plan import read_given_plan

    plan = read_given_plan(args.strategies)
    _check_size(f"--strategies {args.strategies}", Mesh(tuple(plan["mesh"]["shape"])))
    return plan


def _given_way(args: argparse.Namespace, plan: Mapping[str, Any] | None) -> str | None:
    """Return what the plan of ``--strategies``, if it is one for training, computes anew."""
    if plan is None:
        return None
    if args.train and "training" not in plan:
        raise UserError(f"--strategies {args.strategies}: is not for training, expected no --train")
    if not args.train and "training" in plan:
        raise UserError(f"--strategies {args.strategies}: is for training, expected --train --loss")
    return str(plan["training"]["recompute"]) if args.train else None


def _or(text: str | None, default: str) -> str:
    """Return what was given; an empty text is something given, and is refused later."""
    return default if text is None else text


def _check_size(what: str, mesh: Mesh) -> None:
    if mesh.size > MAX_DEVICES:
        raise UserError(
            f"{what}: expected at most {MAX_DEVICES} devices, got: mesh {mesh} of {mesh.size}"
        )
    if len(mesh.shape) > _MAX_AXES:  # only axes of size 1 can be so many: each multiplies choices
        raise UserError(
            f"{what}: expected at most {_MAX_AXES} axes, got: mesh {mesh} of {len(mesh.shape)}"
        )


def _devices(args: argparse.Namespace) -> int:
    count = None
    if args.devices is not None:
        count = whole_number("--devices", args.devices, 1, MAX_DEVICES)
    if args.mesh is not None:
        mesh = parse_mesh(args.mesh, count)
        _check_size("--mesh", mesh)
        return mesh.size
    return count or (MAX_DEVICES if args.objective == "devices" else DEFAULT_DEVICES)


def _seed(args: argparse.Namespace, searches: Sequence[str]) -> int | None:
    if args.seed is None:
        return None
    _check_taken("--seed", "seed", searches)
    return whole_number("--seed", args.seed, 0, 2**32 - 1)


def _epsilon(args: argparse.Namespace, searches: Sequence[str]) -> float | None:
    if args.epsilon is None:
        return None
    _check_taken("--epsilon", "epsilon", searches)
    epsilon = _number(args.epsilon)
    if not 0 <= epsilon <= 1:
        raise UserError(f"--epsilon: expected a number from 0 to 1, got: '{args.epsilon}'")
    return epsilon


def _search_time(args: argparse.Namespace, searches: Sequence[str]) -> float | None:
    if args.search_time is None:
        return None
    _check_taken("--search-time", "time_limit_s", searches)
    seconds = _number(args.search_time)
    if not 0 <= seconds < math.inf:
        raise UserError(f"--search-time: expected seconds, at least 0, got: '{args.search_time}'")
    return seconds


def _number(text: str) -> float:
    """Return the number that ``text`` holds; one out of any range if none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _check_taken(flag: str, field: str, searches: Sequence[str]) -> None:
    """Refuse a flag that none of the searches heeds."""
    valid = takers(field)
    if not set(valid) & set(searches):
        listed = " or ".join(filter(None, [", ".join(valid[:-1]), valid[-1]]))
        got = ",".join(searches)
        raise UserError(f"{flag} belongs to --search {listed}, got: --search {got}")


def _check_explained(args: argparse.Namespace) -> None:
    if args.report is not None and args.objective == "profile":
        raise UserError("--report is about one plan, expected no --objective profile")
    if not args.explain:
        return
    if args.objective == "profile":
        raise UserError("--explain is about one plan, expected no --objective profile")
    if args.format == "csv":
        raise UserError("--explain: expected --format table or json, got: csv")
    if args.pareto and args.format == "json":
        raise UserError("--format json is of one report, expected either --explain or --pareto")


def _check_objective(args: argparse.Namespace) -> None:
    if args.objective == "devices" and args.memory is None:
        raise UserError("--objective devices needs --memory SIZE, the memory of one device")
    if args.objective in ("devices", "profile") and args.mesh is not None:
        raise UserError(f"--objective {args.objective} tries many meshes, expected no --mesh")
    if args.with_leanest and (args.objective != "profile" or args.output is None):
        raise UserError("--with-leanest belongs to a family, expected --objective profile and -o")
    if args.objective in ("memory", "profile") and args.pick is not None:
        raise UserError(f"--objective {args.objective} picks by itself, expected no --pick")

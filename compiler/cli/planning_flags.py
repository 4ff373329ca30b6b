"""The planning flags of tensoropt-opt, checked and turned into a request."""

from __future__ import annotations

import argparse
from typing import Any

from tensoropt.compiler.choices import check_known, whole_number
from tensoropt.compiler.cli.arguments import DEFAULT_DEVICES, FORMATS, MAX_DEVICES, OBJECTIVES
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.errors import UserError
from tensoropt.compiler.layout.mesh import Mesh, parse_mesh
from tensoropt.compiler.request import SEARCHES, Request
from tensoropt.compiler.units import parse_bytes

__all__ = ["read_request", "which_point"]


def read_request(args: argparse.Namespace) -> Request:
    """Return what the flags ask for; raises :class:`UserError` before anything is searched."""
    check_known("--objective: unknown objective", _or(args.objective, "time"), OBJECTIVES)
    check_known("--format: unknown form", _or(args.format, "table"), FORMATS)
    search = _or(args.search, "ft")
    check_known("--search: unknown search", search, SEARCHES)
    _check_objective(args)
    pins = _pins(args)
    mesh = Mesh(tuple(pins["mesh"]["shape"])) if pins else None
    devices, mesh = (mesh.size, mesh) if mesh else _devices(args)
    spec = _or(args.device, "cpu")
    return Request(
        device=load_device(spec),
        device_spec=spec,
        devices=devices,
        mesh=mesh,
        search="pinned" if pins else search,
        seed=_seed(args, search),
        memory_bytes=None if args.memory is None else parse_bytes(args.memory, "--memory"),
        epsilon=_epsilon(args, search),
        pins=pins,
    )


def which_point(args: argparse.Namespace) -> str:
    """Return the point to take: what ``--pick`` says, else what the objective asks for."""
    if args.pick is not None:
        return str(args.pick)
    return "memory" if args.objective == "memory" else "time"


def _pins(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the plan.json of ``--strategies``, which leaves nothing to search."""
    if args.strategies is None:
        return None
    for name in ("devices", "mesh", "search", "seed", "epsilon", "pick", "objective"):
        if getattr(args, name) is not None:
            raise UserError(f"--strategies fixes the plan, expected no --{name}")
    from tensoropt.compiler.plan.reader import read_pins

    return read_pins(args.strategies)


def _or(text: str | None, default: str) -> str:
    """Return what was given; an empty text is something given, and is refused later."""
    return default if text is None else text


def _devices(args: argparse.Namespace) -> tuple[int, Mesh | None]:
    count = None
    if args.devices is not None:
        count = whole_number("--devices", args.devices, 1, MAX_DEVICES)
    if args.mesh is not None:
        mesh = parse_mesh(args.mesh, count)
        if mesh.size > MAX_DEVICES:
            raise UserError(
                f"--mesh: expected at most {MAX_DEVICES} devices, got: '{args.mesh}' ({mesh.size})"
            )
        return mesh.size, mesh
    default = MAX_DEVICES if args.objective == "devices" else DEFAULT_DEVICES
    return count or default, None


def _seed(args: argparse.Namespace, search: str) -> int | None:
    if args.seed is None:
        return 0 if search == "random" else None
    if search != "random":
        raise UserError(f"--seed belongs to --search random, got: --search {search}")
    return whole_number("--seed", args.seed, 0, 2**32 - 1)


def _epsilon(args: argparse.Namespace, search: str) -> float:
    if args.epsilon is None:
        return 0.0
    if search != "ft":
        raise UserError(f"--epsilon belongs to --search ft, got: --search {search}")
    try:
        epsilon = float(args.epsilon)
    except ValueError:
        epsilon = -1.0
    if not 0 <= epsilon <= 1:
        raise UserError(f"--epsilon: expected a number from 0 to 1, got: '{args.epsilon}'")
    return epsilon


def _check_objective(args: argparse.Namespace) -> None:
    if args.objective == "devices" and args.memory is None:
        raise UserError("--objective devices needs --memory SIZE, the memory of one device")
    if args.objective in ("devices", "profile") and args.mesh is not None:
        raise UserError(f"--objective {args.objective} tries many meshes, expected no --mesh")
    if args.objective == "profile" and (args.output is not None or args.plot is not None):
        raise UserError("--objective profile prints a table, expected no -o and no --plot")
    if args.objective in ("memory", "profile") and args.pick is not None:
        raise UserError(f"--objective {args.objective} picks by itself, expected no --pick")

"""Requests from flags or Python arguments, with validation.

Values may be text, as flags are. Errors name the flag for Python arguments too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensoropt.compiler.layout.mesh import Mesh, parse_mesh
from tensoropt.compiler.search.frontier.pins import read_pins_file
from tensoropt.compiler.search.frontier.points import mesh_name
from tensoropt.compiler.search.frontier.request import (
    DEFAULT_DEVICES,
    MANY_DEVICES,
    MAX_DEVICES,
    SEARCHES,
    Request,
)
from tensoropt.compiler.search.methods.registry import takers
from tensoropt.compiler.support.choices import check_known, whole_number
from tensoropt.compiler.support.errors import UserError

__all__ = ["make_request"]

_MAX_AXES = MANY_DEVICES.bit_length() - 1


def make_request(
    *,
    devices: int | str | None = None,
    mesh: str | int | Sequence[int] | None = None,
    device: str | Path | Sequence[str | Path] | None = None,
    memory: int | str | None = None,
    objective: str | None = None,
    search: str | None = None,
    seed: int | str | None = None,
    epsilon: float | str | None = None,
    resolution: float | str | None = None,
    search_time: float | str | None = None,
    search_memory: int | str | None = None,
    strategies: str | Path | None = None,
    pick: str | None = None,
    overlap: str | None = None,
    pins: str | Path | Sequence[str | Path] = (),
    forbid: str | Sequence[str] = (),
    model: str | Path | None = None,
    compared: Sequence[str] = (),
) -> Request:
    """Return the :class:`Request` with the given values; ``None`` is the default.

    A path among ``pins`` is a file with pins, or a model with annotations. ``compared`` are several
    searches instead of ``search``. Raises :class:`UserError` before any search.
    """
    searches = compared or [_or(search, "ft")]
    for name in searches:
        check_known(f"--{'compare' if compared else 'search'}: unknown search", name, SEARCHES)
    mesh_text = _mesh_text(mesh)
    pins = [pins] if isinstance(pins, str | Path) else pins
    forbid = [forbid] if isinstance(forbid, str) else forbid
    given: dict[str, object] = dict(
        devices=devices, mesh=mesh_text, search=search, seed=seed, epsilon=epsilon
    )
    given |= dict(search_time=search_time, search_memory=search_memory, resolution=resolution)
    given |= dict(pick=pick, objective=objective)
    texts = [pin for pin in pins if isinstance(pin, str)]
    every = [pin for pin in pins if isinstance(pin, Path)]
    files = [path for path in every if path.suffix != ".onnx"]
    annotated = next(iter(_annotated(every)), None)
    given |= dict(pin=texts or None, forbid=forbid or None, pins=every or None)
    plan = None if strategies is None else _given_plan(Path(strategies), given)
    pinned, forbidden = _pins(texts, files, forbid)
    if annotated is not None:
        devices, mesh_text = _annotated_mesh(annotated, devices, mesh_text)
    request = Request(
        devices=DEFAULT_DEVICES if plan else _devices(devices, mesh_text, objective),
        mesh=mesh_name(plan["mesh"]["shape"]) if plan else mesh_text,
        device=_device_text(device),
        memory=None if memory is None else str(memory),
        objective=_or(objective, "time"),
        search=searches[0],
        seed=_seed(seed, searches),
        epsilon=_fraction("epsilon", epsilon, searches),
        resolution=_fraction("resolution", resolution, searches),
        search_time=_search_time(search_time, searches),
        search_memory=_search_memory(search_memory, searches),
        strategies=None if strategies is None else str(strategies),
        pick=pick,
        overlap=_or(overlap, "auto"),
        pins=pinned,
        forbid=forbidden,
        model=None if model is None else str(model),
        annotations=None if annotated is None else str(annotated),
    )
    # Validate eagerly.
    _ = request.description, request.memory_bytes, request.read_pins, request.search_memory_bytes
    return request


def _mesh_text(mesh: str | int | Sequence[int] | None) -> str | None:
    if mesh is None:
        return None
    return str(mesh) if isinstance(mesh, str | int) else mesh_name(tuple(mesh))


def _device_text(device: str | Path | Sequence[str | Path] | None) -> str:
    """Return the device description, or the list of several, as the text of a request."""
    given = [device] if isinstance(device, str | Path) else device or ["cpu"]
    odd = next((str(one) for one in given if "," in str(one)), None)
    if odd is not None:
        raise UserError(f"--device: expected a name or path without a comma, got: '{odd}'")
    return ",".join(map(str, given))


def _or(text: str | None, default: str) -> str:
    """Return ``text``, or ``default`` for None; an empty text is kept and refused later."""
    return default if text is None else text


def _pins(
    texts: Sequence[str], files: Sequence[Path], forbid: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the pins and the forbidden placements, from texts and then from files."""
    pinned, forbidden = tuple(texts), tuple(forbid)
    for path in files:
        more, less = read_pins_file(path)
        pinned, forbidden = pinned + more, forbidden + less
    return pinned, forbidden


def _annotated(files: Sequence[Path]) -> list[Path]:
    """Return the annotated model among the files with pins, if any."""
    models = [path for path in files if path.suffix == ".onnx"]
    if len(models) > 1:
        raise UserError(f"--pins {models[1]}: expected one annotated model, got: {len(models)}")
    return models


def _annotated_mesh(
    annotated: Path, devices: int | str | None, mesh: str | None
) -> tuple[int | str | None, str]:
    """Return the devices and the mesh of the annotations; refuse others."""
    from tensoropt.compiler.importer.annotations import read_annotations

    own = read_annotations(annotated).mesh
    agrees = devices is None or str(devices) == str(own.size)
    if not agrees or (mesh is not None and parse_mesh(mesh) != own):
        got = mesh or f"{devices} devices"
        raise UserError(f"--pins {annotated}: expected mesh {own} of its annotations, got: {got}")
    return devices, str(own)


def _given_plan(path: Path, given: Mapping[str, object]) -> Mapping[str, Any]:
    """Return the plan.json of ``strategies``, which leaves nothing to search."""
    for name, value in given.items():
        if value is not None:
            raise UserError(f"--strategies fixes the plan, expected no --{name.replace('_', '-')}")
    from tensoropt.compiler.search.frontier.given_plan import read_given_plan

    plan = read_given_plan(path)
    _check_size(f"--strategies {path}", Mesh(tuple(plan["mesh"]["shape"])))
    return plan


def _check_size(what: str, mesh: Mesh) -> None:
    if mesh.size > MAX_DEVICES:
        raise UserError(
            f"{what}: expected at most {MAX_DEVICES} devices, got: mesh {mesh} of {mesh.size}"
        )
    if len(mesh.shape) > _MAX_AXES:  # more axes include some of extent 1, which multiply choices
        raise UserError(
            f"{what}: expected at most {_MAX_AXES} axes, got: mesh {mesh} of {len(mesh.shape)}"
        )


def _devices(devices: int | str | None, text: str | None, objective: str | None) -> int:
    count = None
    if devices is not None:
        count = whole_number("--devices", str(devices), 1, MAX_DEVICES)
    if text is not None:
        mesh = parse_mesh(text, count)
        _check_size("--mesh", mesh)
        return mesh.size
    return count or (MANY_DEVICES if objective == "devices" else DEFAULT_DEVICES)


def _seed(seed: int | str | None, searches: Sequence[str]) -> int | None:
    if seed is None:
        return None
    _check_taken("--seed", "seed", searches)
    return whole_number("--seed", str(seed), 0, 2**32 - 1)


def _fraction(name: str, given: float | str | None, searches: Sequence[str]) -> float | None:
    """Return ``epsilon`` or ``resolution``, which methods with a bound take."""
    if given is None:
        return None
    _check_taken(f"--{name}", "epsilon", searches)
    fraction = _number(given)
    if not 0 <= fraction <= 1:
        raise UserError(f"--{name}: expected a number from 0 to 1, got: '{given}'")
    return fraction


def _search_time(given: float | str | None, searches: Sequence[str]) -> float | None:
    if given is None:
        return None
    _check_taken("--search-time", "time_limit_s", searches)
    seconds = _number(given)
    if not 0 <= seconds < math.inf:
        raise UserError(f"--search-time: expected seconds, at least 0, got: '{given}'")
    return seconds


def _search_memory(given: int | str | None, searches: Sequence[str]) -> str | None:
    if given is None:
        return None
    _check_taken("--search-memory", "search_memory_bytes", searches)
    return str(given)


def _number(given: float | str) -> float:
    """Return the number in ``given``, NaN if it is no number, which no range contains."""
    try:
        return float(given)
    except ValueError:
        return math.nan


def _check_taken(flag: str, field: str, searches: Sequence[str]) -> None:
    """Refuse a flag that all of the searches ignore."""
    valid = takers(field)
    if not set(valid) & set(searches):
        listed = " or ".join(filter(None, [", ".join(valid[:-1]), valid[-1]]))
        got = ",".join(searches)
        raise UserError(f"{flag} belongs to --search {listed}, got: --search {got}")

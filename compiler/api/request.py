"""Requests from flags or from Python, and the arguments in Python."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from tensoropt.compiler.layout.mesh import parse_mesh
from tensoropt.compiler.planning.request import (
    COMBINATIONS,
    MANY_DEVICES,
    Request,
    check_searches,
    check_size,
)
from tensoropt.compiler.search.frontier.pins import read_pins_file
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.options import Interface, Option, check_combinations, options_of
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.options import keywords_of

__all__ = ["SearchArguments", "SearchLimits", "documented", "make_request", "plain"]


class SearchLimits(TypedDict, total=False):
    """The effort of a search: arguments in Python, each an option of :class:`Request`."""

    epsilon: float | None
    search_time: float | None
    search_memory: int | str | None


class SearchArguments(SearchLimits, total=False):
    """All arguments in Python of a search on one number of devices."""

    mesh: str | int | Sequence[int] | None
    objective: str | None
    stages: int | None
    batches: int | None
    schedule: str | None
    search: str | None
    resolution: float | None
    seed: int | None
    strategies: str | Path | None
    pins: str | Path | Sequence[str | Path]
    forbid: str | Sequence[str]
    overlap: str | None
    launch: str | None


F = TypeVar("F", bound=Callable[..., object])

_OTHERS = {
    "train": "the training step to plan, instead of inference",
    "progress": "report on stderr, or call this function with a line and the best points below",
}
"""Arguments that are no options of a request, and their help."""


def documented(arguments: type | None = None) -> Callable[[F], F]:
    """Return the decorator that completes the signature and the docstring of a method.

    The keys of the TypedDict ``arguments``, the type of ``**options``, become keyword arguments.
    The docstring then lists all arguments that are options of :class:`Request`, with their help.
    Other keyword arguments raise TypeError.
    """
    options = options_of(Request)
    defaults = {name: option.default for name, option in options.items()}
    keys = [] if arguments is None else keywords_of(arguments, defaults)
    more = {keyword.name: keyword for keyword in keys}

    def complete(method: F) -> F:
        signature = inspect.signature(method)
        own = {name: each for name, each in signature.parameters.items() if name != "options"}
        keywords = {name for name, each in own.items() if each.kind is each.KEYWORD_ONLY}
        names = [name for name in own if name not in keywords]
        names += [name for name in options if name in keywords | more.keys()]
        names += [name for name in own if name not in names]
        parameters = [(own | more)[name] for name in names]
        signature = signature.replace(parameters=parameters)
        lines = [_line(each, options) for each in parameters if each.name in options | _OTHERS]

        @functools.wraps(method)
        def completed(*args: object, **keywords: object) -> object:
            signature.bind(*args, **keywords)
            return method(*args, **keywords)

        completed.__doc__ = "\n".join([inspect.getdoc(method) or "", "", *lines])
        completed.__signature__ = signature  # type: ignore[attr-defined]
        return cast("F", completed)

    return complete


def _line(parameter: inspect.Parameter, options: Mapping[str, Option]) -> str:
    """Return the entry of a docstring's list; a default of the method precedes the option's."""
    help = _OTHERS.get(parameter.name)
    if help is None:
        option = options[parameter.name]
        if parameter.default not in (None, parameter.empty):
            option = replace(option, default=parameter.default)
        help = option.help_in(Interface.PYTHON)
    entry = f"- ``{parameter.name}``: {help}"
    return textwrap.fill(entry, 96, subsequent_indent="  ", break_on_hyphens=False)


def plain(value: object) -> object:
    """Return the number or the list that NumPy's or PyTorch's ``value`` has, else ``value``."""
    return value.tolist() if hasattr(value, "tolist") else value


def make_request(
    given: Mapping[str, Any], interface: Interface, searches: Sequence[str] = ()
) -> Request:
    """Return the :class:`Request` with the ``given`` options; None and empty lists are not given.

    A path among ``pins`` is a file with pins, or a model with annotations. ``searches`` are several
    searches to compare, instead of one. Raises :class:`UserError` before any search.
    """
    plainly = {name: plain(value) for name, value in given.items()}
    given = {name: value for name, value in plainly.items() if value not in (None, (), [])}
    check_combinations(COMBINATIONS, {name: interface.name_of(name) for name in given})
    with interface.naming():
        given |= _read_pins(given.get("pins", ()), given.get("forbid", ()))
        sized = "devices" in given
        if given.get("objective") == "devices" and not sized:
            given["devices"] = MANY_DEVICES
        if "model" in given:
            given["model"] = str(given["model"])
        request = Request(**given, may_cut=_may_cut(given), interface=interface)
        if request.groups:
            _check_groups(request, given)
        elif request.mesh is not None and sized:
            parse_mesh(request.mesh, int(given["devices"]), request.stages or 1)
        check_searches(given, searches or [request.search], interface)
        if request.annotations is not None:
            request = _annotated(request, sized=sized)
        elif request.given_plan is not None:
            mesh = Mesh(tuple(request.given_plan["mesh"]["shape"]))
            check_size(f"--strategies {request.strategies}", mesh)
            request = replace(request, mesh=str(mesh))
        if request.objective == "devices" and request.limit_bytes is None:
            raise UserError(
                f"--objective devices: expected {interface.name_of('memory')} SIZE, the memory of "
                f"one device, as {request.description.name} has no capacity_bytes"
            )
        _ = request.description, request.read_pins  # read the files now
    return request


def _may_cut(given: Mapping[str, Any]) -> bool:
    """Return whether all combinations with stages are allowed, and none are given."""
    values = {f"{name}={value}" for name, value in given.items()}
    try:
        check_combinations(
            COMBINATIONS, dict.fromkeys([*given, *values, "stages", "stages=auto"], "")
        )
    except UserError:
        return False
    return "stages" not in given and "schedule" not in given


def _check_groups(request: Request, given: Mapping[str, Any]) -> None:
    """Raise :class:`UserError` if groups of unlike devices were given with a number or a device."""
    devices = given.get("devices", request.devices)
    if devices not in (request.device, request.devices):
        raise UserError(
            f"--devices: expected no number with unlike devices, {request.device} has "
            f"{request.devices}, got: {devices}"
        )
    if "device" in given and devices == request.device:
        raise UserError(f"--device: expected none with --devices {devices}, got: {given['device']}")


def _read_pins(
    pins: str | Path | Sequence[str | Path], forbid: str | Sequence[str]
) -> dict[str, Any]:
    """Return the pins and the forbidden placements, from texts and then from files."""
    given = [pins] if isinstance(pins, str | Path) else pins
    read: dict[str, Any] = {
        "pins": [pin for pin in given if isinstance(pin, str)],
        "forbid": [forbid] if isinstance(forbid, str) else [*forbid],
    }
    paths = [path for path in given if isinstance(path, Path)]
    models = [path for path in paths if path.suffix == ".onnx"]
    if len(models) > 1:
        raise UserError(f"--pins {models[1]}: expected one annotated model, got: {len(models)}")
    for path in paths:
        if path in models:
            read["annotations"] = str(path)
        else:
            pinned, forbidden = read_pins_file(path)
            read["pins"] += pinned
            read["forbid"] += forbidden
    return read


def _annotated(request: Request, *, sized: bool) -> Request:
    """Return the request on the mesh of its annotations; refuse another mesh.

    Another number of devices is refused if the request is ``sized``.
    """
    from tensoropt.compiler.importer.annotations import read_annotations

    own = read_annotations(Path(request.annotations or "")).mesh
    agrees = request.mesh is None or request.meshes == [own]
    if not agrees or (sized and request.devices != own.size):
        got = request.mesh or f"{request.devices} devices"
        raise UserError(
            f"--pins {request.annotations}: expected mesh {own} of its annotations, got: {got}"
        )
    return replace(request, mesh=str(own))

"""Request for a search: the devices, the search method and its effort, and the point to pick.

:class:`Request` declares every option of a search. The flags of tensoropt-opt, the options of the
pass `search-strategies` and the arguments in Python derive from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from tensoropt.compiler.comparison.registry import METHODS, takers
from tensoropt.compiler.cost.device import Device, Group, load_device, names_groups
from tensoropt.compiler.layout.execution import GRAPH, LAUNCHES, OVERLAPS
from tensoropt.compiler.layout.mesh import factorisations, parse_mesh
from tensoropt.compiler.search.frontier.pins import Pin, annotated_pins, read_pin
from tensoropt.compiler.search.frontier.points import check_pick, mesh_name
from tensoropt.compiler.stages.names import SCHEDULES
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.options import (
    Combination,
    Interface,
    Option,
    number,
    one_of,
    options_of,
    size,
    whole,
)
from tensoropt.compiler.support.units import parse_bytes
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.places import INPUT, Input

__all__ = [
    "ANSWER_S",
    "AUTO",
    "COMBINATIONS",
    "DEFAULT_DEVICES",
    "MANY_DEVICES",
    "MAX_DEVICES",
    "OBJECTIVES",
    "PINNED",
    "SEARCHES",
    "THROUGHPUT",
    "Request",
    "check_searches",
    "check_size",
    "device_counts",
]

SEARCHES = tuple(METHODS)
PINNED = "pinned"
"""The name of the search in a plan with given strategies."""

DEFAULT_DEVICES = 4
MAX_DEVICES = 1024
MANY_DEVICES = 64
"""Number of devices above which only meshes of up to three axes are searched; also the largest
number that ``objective`` devices tries by default."""
MANY_AXES = 3
MOST_GROUPS = 4
"""Number of groups of unlike devices: their stages are searched in all orders."""
MOST_BATCHES = 2**20
ANSWER_S = 10.0
"""Most seconds from the start of the command to the answer, without ``epsilon`` and
``search_time``."""
RESOLUTION = 0.01
"""Default relative distance of shown points: nobody chooses between closer plans."""
ENOUGH = 0.05
"""Bound of the shown points at which a search ends by default."""
MOST_POINTS = 25
"""Largest number of points without ``resolution`` and ``epsilon``: more are not compared."""
THROUGHPUT = "throughput"
OBJECTIVES = ("time", THROUGHPUT, "memory", "devices")


_DESCRIPTIONS = Input(str, separators=",:")


def check_size(place: str, mesh: Mesh) -> None:
    """Raise UserError if ``mesh`` has too many devices or axes; ``place`` begins the error."""
    if mesh.size > MAX_DEVICES:
        raise UserError(
            f"{place}: expected at most {MAX_DEVICES} devices, got: mesh {mesh} of {mesh.size}"
        )
    axes = MANY_DEVICES.bit_length() - 1
    if len(mesh.shape) > axes:  # more axes include some of extent 1, which multiply choices
        raise UserError(
            f"{place}: expected at most {axes} axes, got: mesh {mesh} of {len(mesh.shape)}"
        )


def _mesh(name: str, given: object) -> str:
    if isinstance(given, Sequence) and not isinstance(given, str):
        given = mesh_name(tuple(given))
    check_size(name, parse_mesh(str(given)))
    return str(given)


def _device(name: str, given: object) -> str:
    """Return a description, or the list of several, as :func:`load_device` takes it."""
    if isinstance(given, str):
        return given
    several = [*map(str, given)] if isinstance(given, Sequence) else [str(given)]
    odd = next((each for each in several if "," in each), None)
    if odd is not None:
        raise UserError(f"{name}: expected a name or path without a comma, got: '{odd}'")
    return ",".join(several)


def _devices(name: str, given: object) -> int | str:
    """Return a number of devices, or a text that names groups of them."""
    if isinstance(given, str) and names_groups(given):
        return given
    try:
        return cast("int", whole(1, MAX_DEVICES)(name, given))
    except UserError as error:
        if not re.search("[:,]", str(given)):
            raise
        raise UserError(f"{error} (or groups, such as a100:4,v100:4)") from None


AUTO = 0
"""All numbers of stages that divide the devices."""


def _stages(name: str, given: object) -> int:
    """Return a number of stages, or ``AUTO``."""
    if given in ("auto", AUTO):
        return AUTO
    try:
        return int(str(whole(1, MAX_DEVICES)(name, given)))
    except UserError as error:
        raise UserError(f"{error} (or auto)") from None


def _pick(name: str, given: object) -> str:
    check_pick(str(given))
    return str(given)


def _texts(name: str, given: object) -> tuple[str, ...]:
    if isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(map(str, given))
    return (str(given),)


@dataclass(frozen=True)
class Request:
    """The options of a search, checked. Raises :class:`UserError`, which names the option.

    ``devices`` is the size of ``mesh``, if there is one, times the stages. ``accumulates`` if the
    program is a training step of several micro-batches. ``may_cut`` if nothing was requested about
    stages or against them, so that the search may cut the program if nothing fits. ``model`` is the
    file with the names of tensors that pins may use, and ``annotations`` a model with multi-device
    annotations, which are more pins. ``interface`` is the origin of the options.
    """

    devices: int = Option(
        "N|NAME:N,...",
        "number of devices; all their meshes are searched; or unlike ones, such as a100:4,v100:4",
        _devices,
        place=_DESCRIPTIONS,
    ).field(DEFAULT_DEVICES)
    mesh: str | None = Option(
        "AxB", "search one mesh only, such as 2x4", _mesh, in_python=" or (2, 4)"
    ).field(None)
    stages: int = Option(
        "K",
        "cut the program into stages, each on a K-th of the devices, as a pipeline; auto searches "
        "all numbers that divide the devices (default 1; auto with {objective} throughput, and for "
        "training in micro-batches on several nodes)",
        _stages,
    ).field(cast("int", None))
    batches: int | None = Option(
        "K",
        "in inference on unlike devices, a run takes K batches of the model, and each device some "
        "of them by its speed",
        whole(2, MOST_BATCHES),
    ).field(None)
    schedule: str | None = Option(
        "NAME",
        f"order of the micro-batches on the stages: {', '.join(SCHEDULES)} (default: all of them "
        "are searched)",
        one_of("schedule", SCHEDULES),
    ).field(None)
    device: str = Option(
        "NAME|FILE.toml",
        "device description; of several for one kind of machine, the first that has a value counts",
        _device,
        repeats=True,
        place=_DESCRIPTIONS,
    ).field("cpu")
    memory: str | None = Option(
        "SIZE",
        "memory limit of one device's process, such as 16GiB (default: the device's capacity)",
        size,
    ).field(None)
    objective: str = Option(
        "WHAT",
        "minimize time, in inference the latency; throughput: the time between results of a stream "
        "of inputs; memory; devices: the fewest on which a plan fits",
        one_of("objective", OBJECTIVES),
        in_command="; profile: one plan per number of devices; service:LEVEL: replicas for texts",
    ).field(OBJECTIVES[0])
    search: str = Option(
        "NAME", f"search method: {', '.join(SEARCHES)}", one_of("search", SEARCHES)
    ).field("ft")
    seed: int | None = Option(
        "K",
        f"seed of {{search}} {', '.join(takers('seed'))} (default 0)",
        whole(0, 2**32 - 1),
        owners=takers("seed"),
    ).field(None)
    epsilon: float | None = Option(
        "E",
        "relative slack of the frontier: 0 is exact, 0.05 within 5%; the search then has no time "
        "limit",
        number("a number from 0 to 1", 0, 1),
        owners=takers("epsilon"),
    ).field(None)
    resolution: float | None = Option(
        "R",
        "least relative difference in time and in memory between points (default 0.01, at most "
        "{epsilon}; coarser without {epsilon} for more than 25 points)",
        number("a number from 0 to 1", 0, 1),
        owners=takers("epsilon"),
    ).field(None)
    search_time: float | None = Option(
        "S",
        f"seconds for {{search}} {' or '.join(takers('time_limit_s'))}, all meshes together "
        f"(default: until the bound is {ENOUGH:.0%}, at most {ANSWER_S:g} s after the start; no "
        "limit with {epsilon})",
        number("seconds, at least 0", 0),
        owners=takers("time_limit_s"),
    ).field(None)
    search_memory: str | None = Option(
        "SIZE",
        "memory limit of the search itself, such as 4GiB (default: a quarter of this machine's)",
        size,
        owners=takers("search_memory_bytes"),
    ).field(None)
    strategies: str | None = Option(
        "PLAN.json",
        "use the strategies of a plan, edited or not, instead of searching",
        place=INPUT,
    ).field(None)
    pick: str | None = Option(
        "WHICH", "the point to use: an index, fastest, leanest or knee", _pick
    ).field(None)
    overlap: str = Option(
        "WHICH",
        "overlap collectives with compute if that saves time: auto or off",
        one_of("choice", OVERLAPS),
    ).field("auto")
    launch: str = Option(
        "WHICH",
        "on a GPU, launch each node, or the step as one CUDA graph, as tensoropt-run "
        "--cuda-graphs does: nodes or graph",
        one_of("choice", LAUNCHES),
    ).field("nodes")
    pins: tuple[str, ...] = Option(
        "WHAT=HOW",
        "fix the layout of a tensor or the strategy of a node: 'w*=S(0)@x', 'node:/attn/*=heads'",
        _texts,
        in_python="; a Path is a .toml file with pins, or an .onnx model with annotations",
        flag="pin",
        repeats=True,
    ).field((), in_pipeline=False)
    forbid: tuple[str, ...] = Option(
        "WHAT=HOW", "exclude a layout or a strategy", _texts, repeats=True
    ).field((), in_pipeline=False)
    accumulates: bool = field(default=False, metadata={"option": False})
    may_cut: bool = field(default=False, metadata={"option": False})
    model: str | None = field(default=None, metadata={"option": False})
    annotations: str | None = field(default=None, metadata={"option": False})
    interface: Interface = field(
        default=Interface.COMMAND, compare=False, repr=False, metadata={"option": False}
    )

    def __post_init__(self) -> None:
        for name, option in options_of(self).items():
            given = getattr(self, name)
            if given is not None:
                with self.interface.naming():
                    value = option.read(self.interface.name_of(name), given)
                object.__setattr__(self, name, value)
        if isinstance(self.devices, str):
            object.__setattr__(self, "device", self.devices)
            object.__setattr__(self, "devices", DEFAULT_DEVICES)
        if self.groups:
            object.__setattr__(self, "devices", sum(own.count for own in self.groups))
        if self.stages is None:
            object.__setattr__(self, "stages", AUTO if self._wants_stages else 1)
        if self.mesh is not None:
            object.__setattr__(self, "devices", parse_mesh(self.mesh).size * (self.stages or 1))
        if self.schedule is not None and self.stages == 1:
            schedule, stages = map(self.interface.name_of, ("schedule", "stages"))
            raise UserError(
                f"{schedule} is of a pipeline, expected {stages} of 2 or more, or auto, got: 1"
            )
        if self.stages and self.devices % self.stages:
            stages, devices = map(self.interface.name_of, ("stages", "devices"))
            raise UserError(
                f"{stages}: expected a divisor of {devices} {self.devices}, got: {self.stages}"
            )
        self._check_groups()

    def _check_groups(self) -> None:
        """Raise :class:`UserError` for other numbers of devices, and stages that span groups."""
        total = sum(own.count for own in self.groups)
        if self.groups and self.devices != total:
            raise UserError(
                f"{self.interface.name_of('device')} {self.device}: expected all of its {total} "
                f"devices, got: mesh {self.mesh} of {self.devices}"
            )
        if self.objective == "devices":
            self.check_one_kind()
        if self.batches is not None and not self.replicates:
            batches, devices = map(self.interface.name_of, ("batches", "devices"))
            raise UserError(
                f"{batches} divides a run among unlike devices, expected groups in {devices}, such "
                f"as a100:4,v100:4, got: {self.device}"
            )
        if self.devices > MAX_DEVICES:
            raise UserError(
                f"{self.interface.name_of('devices')}: expected at most {MAX_DEVICES}, got: "
                f"{self.device} of {self.devices}"
            )
        if len(self.groups) > MOST_GROUPS:
            raise UserError(
                f"{self.interface.name_of('devices')}: expected at most {MOST_GROUPS} groups of "
                f"like devices, got: {self.device} of {len(self.groups)}"
            )
        size = self.devices // (self.stages or self.devices)
        split = next((own for own in self.groups if own.count % size), None)
        if split is not None and self.stages > 1:
            raise UserError(
                f"{self.interface.name_of('stages')}: a stage has {size} like devices, which does "
                f"not divide the {split.count} of {split.name}, expected another number"
            )

    def check_one_kind(self) -> None:
        """Raise :class:`UserError` for groups of unlike devices: their number is fixed."""
        if self.groups:
            raise UserError(
                f"{self.interface.name_of('objective')} is about numbers of like devices, "
                f"expected one kind of {self.interface.name_of('device')}, got: {self.device}"
            )

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of unlike devices; none if there is one kind."""
        return load_device(self.device).groups

    @property
    def _wants_stages(self) -> bool:
        """True if pipelines are searched by default: they save time across the links of nodes."""
        if self.mesh is not None or self.objective == THROUGHPUT:
            return self.mesh is None
        is_free = self.search == "ft" and self.strategies is None
        if self.groups:
            return is_free and self.batches is None
        spans_nodes = self.devices > load_device(self.device).devices_per_node
        return self.accumulates and is_free and spans_nodes

    @property
    def replicates(self) -> bool:
        """True if replicas are searched: on unlike devices, without a mesh."""
        return bool(self.groups) and self.mesh is None and self.stages in (1, AUTO)

    @cached_property
    def description(self) -> Device:
        """The description of a device; raises UserError if it is unknown.

        Its capacity is unknown under a memory limit, which takes its place, and with stages, as the
        memory of a point is the memory of all of them.
        """
        device = load_device(self.device)
        is_limited = self.memory is None and self.stages == 1
        device = device if is_limited else device.without_capacity()
        device = device.with_cuda_graphs() if self.launch == GRAPH else device
        return device.without_overlap() if self.overlap == "off" else device

    @cached_property
    def meshes(self) -> list[Mesh]:
        """The meshes to search, of one stage."""
        if self.mesh:
            return [parse_mesh(self.mesh)]
        devices = self.devices // (self.stages or 1)
        axes = devices if devices <= MANY_DEVICES else MANY_AXES
        return list(factorisations(devices, axes))

    @cached_property
    def memory_bytes(self) -> int | None:
        """The memory that ``memory`` allows one device, ``None`` without it."""
        return None if self.memory is None else parse_bytes(self.memory, "memory")

    @property
    def limit_bytes(self) -> int | None:
        """The memory limit of one device: ``memory``, else its capacity; ``None`` without both."""
        return self.capacity_bytes if self.memory is None else self.memory_bytes

    @property
    def capacity_bytes(self) -> int | None:
        """The memory of one device, ``None`` if it is unknown or ``memory`` takes its place.

        With stages on unlike devices, it is the largest; points have the limit of each stage.
        """
        if self.memory:
            return None
        if self.groups and self.stages != 1:
            sizes = [own.device.memory_capacity_bytes for own in self.groups]
            return None if None in sizes else max(size for size in sizes if size is not None)
        return load_device(self.device).memory_capacity_bytes

    def fits(self, process_bytes: int) -> bool:
        """Return whether a process of a rank fits the given limit of memory, if there is one."""
        return self.memory_bytes is None or process_bytes <= self.memory_bytes

    @property
    def search_limit_bytes(self) -> int | None:
        """The memory limit of a process in the search of one mesh; ``None`` without.

        The capacity does not limit searches of stages, as `description` says.
        """
        return self.description.memory_capacity_bytes if self.memory is None else self.memory_bytes

    @property
    def rest_bytes(self) -> int:
        """The memory of the process of a device before it has tensors."""
        return self.description.rest_bytes(self.devices)

    @cached_property
    def search_memory_bytes(self) -> int | None:
        """The memory limit of the search itself, ``None`` for the default."""
        text = self.search_memory
        return None if text is None else parse_bytes(text, "search memory")

    @cached_property
    def read_pins(self) -> tuple[Pin, ...]:
        """The pins of ``pins``, ``annotations`` and ``forbid``; UserError if a text is no pin."""
        given = tuple(read_pin(text) for text in self.pins)
        if self.annotations is not None:
            given += annotated_pins(Path(self.annotations))
        return given + tuple(read_pin(text, forbids=True) for text in self.forbid)

    @cached_property
    def given_plan(self) -> Mapping[str, Any] | None:
        """The plan.json of ``strategies``."""
        if self.strategies is None:
            return None
        from tensoropt.compiler.planning.given_plan import read_given_plan

        return read_given_plan(Path(self.strategies))

    @property
    def anytime(self) -> bool:
        """True if the search ends when a person has waited long enough."""
        return self.epsilon is None and self.search_time is None

    @property
    def resolution_used(self) -> float:
        """The relative distance of shown points: 1%, less for a finer bound."""
        if self.resolution is not None:
            return self.resolution
        return RESOLUTION if self.epsilon is None else min(RESOLUTION, self.epsilon)

    @property
    def most_points(self) -> int | None:
        """The largest number of points of a default search."""
        return MOST_POINTS if self.resolution is None and self.epsilon is None else None

    @property
    def tolerance(self) -> float:
        """The bound of the search, no finer than the resolution if a time or that is given."""
        if self.epsilon is not None:
            return self.epsilon
        if self.anytime and self.resolution is None:
            return (1 + ENOUGH) / (1 + RESOLUTION) - 1  # the resolution widens the bound
        return self.resolution_used

    @property
    def found_by(self) -> str:
        """The name of the search in the plan."""
        return self.search if self.strategies is None else PINNED

    @property
    def used_seed(self) -> int | None:
        """The seed, if the search takes one."""
        return (self.seed or 0) if self.found_by in takers("seed") else None

    @property
    def picked(self) -> str:
        """The point to take: ``pick``, else by the objective."""
        if self.pick is not None:
            return self.pick
        return "leanest" if self.objective == "memory" else "fastest"

    def with_devices(self, devices: int) -> Request:
        """Return the request for other devices, without stages unless they divide the devices."""
        own = replace(self, stages=1, schedule=None, devices=devices, mesh=None)
        divides = self.stages == AUTO or devices % self.stages == 0
        return replace(own, stages=self.stages, schedule=self.schedule) if divides else own


COMBINATIONS = (
    Combination(
        ["strategies"],
        "{given} fixes the plan, expected no {other}",
        excludes=[
            *("devices", "mesh", "search", "seed", "epsilon", "search_time", "pick", "objective"),
            *("pin", "forbid", "pins", "stages"),
        ],
    ),
    Combination(
        ["stages"],
        "{given} plans pipelines, expected no {other}",
        excludes=["objective=memory", "objective=devices", "compare", "netron"],
    ),
    Combination(
        ["batches"],
        "{given} plans replicas for inference, expected no {other}",
        excludes=["train", "stages", "mesh", "strategies", "objective", "compare", "netron"],
    ),
    Combination(
        [f"objective={THROUGHPUT}"],
        "{given} plans pipelines, expected no {other}",
        excludes=["netron"],
    ),
    Combination(
        ["stages=auto"],
        "{given}: stages have meshes of different sizes, expected no {other}",
        excludes=["mesh"],
    ),
)
"""The refused combinations of options, with ``--pin`` for texts among the pins."""


def check_searches(given: Iterable[str], searches: Sequence[str], interface: Interface) -> None:
    """Raise UserError if none of ``searches`` uses one of the ``given`` options."""
    options = options_of(Request)
    for name in options.keys() & given:
        options[name].check_owner("search", searches, interface)


def device_counts(most: int) -> list[int]:
    """Return 1, 2, 4, 8, ... up to ``most``, and ``most`` itself."""
    powers = [2**power for power in range(most.bit_length()) if 2**power <= most]
    return powers if powers[-1] == most else [*powers, most]

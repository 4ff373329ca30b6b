"""Device descriptions: compute, memory, and communication of one rank, read from TOML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from tensoropt.compiler.cost.expected_error import (
    ExpectedError,
    MeasuredModel,
    PlanError,
    is_known,
    read_expected_error,
    read_measured_models,
    worse,
)
from tensoropt.compiler.cost.fields import Table
from tensoropt.compiler.cost.kernel import FAMILIES
from tensoropt.compiler.cost.machine import Machine, read_machine
from tensoropt.compiler.cost.measurements import (
    Collectives,
    Operators,
    Waiting,
    check_types,
    read_collectives,
    read_operators,
    read_waiting,
)
from tensoropt.compiler.cost.overlap import Overlap, read_overlap
from tensoropt.compiler.cost.process import Footprint, Process, read_process
from tensoropt.compiler.cost.size_table import SizeTable, read_size_table
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "LEAST_LAUNCH_S",
    "Device",
    "Group",
    "Link",
    "description_text",
    "device_names",
    "device_of",
    "load_device",
    "names_groups",
]

_FOLDER = Path(__file__).with_name("devices")

# Every step takes more time than a rounding error, so that a path of steps has no cycles.
LEAST_LAUNCH_S = 1e-9


@dataclass(frozen=True)
class Link:
    """Connection between ranks: latency of a message, and bandwidth of one rank."""

    latency_s: float
    bandwidth_bytes_per_s: float

    def send_s(self, size_bytes: float) -> float:
        """Return the time of one message."""
        return self.latency_s + size_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True)
class Group:
    """Like devices among unlike ones: the ``name`` to load them by, and their number."""

    name: str
    count: int

    @property
    def device(self) -> Device:
        """The description of one of them."""
        return load_device(self.name)


@dataclass(frozen=True)
class Device:
    """The hardware of one rank of a job.

    ``peaks`` has (NumPy type name, FLOP/s); ``contraction_efficiency`` is the fraction of the peak
    that large products reach. Ranks ``[k * devices_per_node, (k + 1) * devices_per_node)`` share a
    node and communicate over ``intra_node``; other ranks over ``network``. ``step_overhead_s`` is
    the time to run a graph in addition to its nodes. ``memory_capacity_bytes`` is ``None`` if
    unknown.

    ``operators`` and ``collectives`` are measurements, by (ONNX name, NumPy type) and by (kind,
    ranks of a group). ``kernels`` are the factors of kernels over the roofline at the peak, by
    (family, type). A node takes at least ``host_launch_s``, the time of the host to launch it, 0 in
    CUDA graphs and ``None`` if the host computes. ``waiting`` is the extra time of steps by number
    of ranks, because ranks wait for each other. ``process`` is the memory of a process besides
    tensors, ``None`` if not measured. ``overlap`` is the cost of overlapping collectives with
    operators, ``None`` if none overlap. ``expected_error`` is the error of predictions, ``None`` if
    not measured. ``measured_models`` are the models with measured plans, ``machine`` the machine of
    the measurements.

    With ``groups`` of unlike devices, it describes a rank of a program without stages, in which all
    ranks wait for the slowest: the slowest device, with the least memory. ``network`` connects the
    groups, which are on nodes of their own.

    ``provider`` is the execution provider of the ranks: of the measurements, or as the description
    says. ``architectures`` are the compute capabilities of GPUs times ten, 90 for H100: one, or of
    all groups. There are none for processors, and if one is unknown.
    """

    name: str
    peaks: tuple[tuple[str, float], ...]
    contraction_efficiency: float
    memory_bandwidth_bytes_per_s: float
    memory_capacity_bytes: int | None
    launch_overhead_s: float
    devices_per_node: int
    intra_node: Link
    network: Link
    step_overhead_s: float = 0.0
    host_launch_s: float | None = None
    operators: Operators = field(default_factory=dict, hash=False)
    collectives: Collectives = field(default_factory=dict, hash=False)
    kernels: Mapping[tuple[str, str], SizeTable] = field(default_factory=dict, hash=False)
    waiting: Mapping[int, Waiting] = field(default_factory=dict, hash=False)
    process: Process | None = None
    overlap: Overlap | None = None
    expected_error: ExpectedError | None = None
    measured_models: tuple[MeasuredModel, ...] = ()
    machine: Machine | None = None
    groups: tuple[Group, ...] = ()
    provider: str = "cuda"
    architectures: tuple[int, ...] = ()

    @property
    def has_attention(self) -> bool:
        """True if ranks may have a kernel of `tensoropt.Attention`; a GPU has it for some forms."""
        return self.provider == "cpu" or bool(self.architectures)

    def waits(self, ranks: int) -> Waiting:
        """Return the waiting of ``ranks`` ranks, measured for the next larger or largest number."""
        if ranks == 1 or not self.waiting:
            return Waiting()
        known = [count for count in self.waiting if count >= ranks]
        return self.waiting[min(known, default=max(self.waiting))]

    def plan_error(self, model: Path | None, *, training: bool) -> PlanError | None:
        """Return the expected error of a plan of a model file; ``None`` if nothing was measured."""
        if self.expected_error is None and self.machine is None:
            return None
        known = is_known(self.measured_models, model, training=training)
        return (self.expected_error or ExpectedError()).of_plan(known=known)

    @property
    def overlaps(self) -> bool:
        """True if overlapping collectives with operators saves time."""
        return self.overlap is not None and self.overlap.share < 1

    @property
    def between_groups(self) -> Device:
        """The same device, with links that all connect groups of unlike devices."""
        return replace(self, intra_node=self.network, collectives={})

    def without_overlap(self) -> Device:
        """Return the same device with no overlap of collectives and operators."""
        return replace(self, overlap=None)

    def with_cuda_graphs(self) -> Device:
        """Return the same device, with steps that the host launches as a whole."""
        return self if self.host_launch_s is None else replace(self, host_launch_s=0.0)

    def without_capacity(self) -> Device:
        """Return the same device with a memory of unknown size."""
        return replace(self, memory_capacity_bytes=None)

    def with_ample_memory(self) -> Device:
        """Return the same device, with collectives started early even if peak memory rises."""
        overlap = None if self.overlap is None else replace(self.overlap, keeps_peak=False)
        return replace(self, overlap=overlap)

    def process_bytes(self, footprint: Footprint, ranks: int) -> int:
        """Return the memory of a rank's process; only its tensors if the rest was not measured."""
        if self.process is None:
            return footprint.static_bytes + footprint.transient_bytes
        return self.process.bytes(footprint, ranks)

    def rest_bytes(self, ranks: int, *, trains: bool = False) -> int:
        """Return the memory of a process without its tensors, 0 if it was not measured."""
        return 0 if self.process is None else self.process.rest_bytes(ranks, trains=trains)

    def peak_flop_per_s(self, dtype: str) -> float:
        """Return the peak rate of a NumPy type name; a type not listed runs at float32's rate."""
        peaks = dict(self.peaks)
        return peaks.get(dtype, peaks["float32"])

    @property
    def product_flop_per_s(self) -> float:
        """The rate of large products in single precision."""
        return self.peak_flop_per_s("float32") * self.contraction_efficiency

    def kernel_table(self, family: str, dtype: str) -> SizeTable | None:
        """Return the table of a family in a type, else in bfloat16."""
        return self.kernels.get((family, dtype)) or self.kernels.get((family, "bfloat16"))

    def axis_links(self, mesh: Mesh) -> tuple[Link, ...]:
        """Return the link of each mesh axis: ``intra_node`` if all its groups stay in a node.

        Ranks are row-major, so the groups of an axis tile blocks of consecutive ranks. They stay
        within nodes exactly when a node contains whole blocks or all ranks.
        """
        links, block = [], 1
        for extent in reversed(mesh.shape):
            block *= extent
            fits = mesh.size <= self.devices_per_node or self.devices_per_node % block == 0
            links.append(self.intra_node if fits or extent == 1 else self.network)
        return tuple(reversed(links))


def device_names() -> list[str]:
    """Return the sorted names of the devices that tensoropt includes."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


@cache
def load_device(given: str) -> Device:
    """Return a device by its name, or from a file if ``given`` is a path or ends in ``.toml``.

    Several names, separated by commas, are combined: measurements of all of them are used. For a
    measurement that several have, and for everything else, the first one takes precedence. Names
    with numbers, such as ``a100:4,v100:4``, are groups of unlike devices, as is a file with
    ``[groups]``.

    Raises :class:`UserError` for an unknown name, for an unreadable or invalid file, and for
    descriptions measured on different kinds of machine.
    """
    if names_groups(given):
        groups = _read_groups(given)
        return _grouped(",".join(f"{own.device.name}:{own.count}" for own in groups), groups)
    first, *others = given.split(",")
    device = _loaded(first)
    for name in others:
        device = _joined(device, first, _loaded(name), name)
    return device


_GROUP = re.compile(r"(?P<name>.+):(?P<count>\d+)")


def names_groups(given: str) -> bool:
    """Return whether a text names groups of devices with their numbers, such as ``a100:4``."""
    return any(_GROUP.fullmatch(each) for each in given.split(","))


def _read_groups(given: str) -> list[Group]:
    found = []
    for each in given.split(","):
        match = _GROUP.fullmatch(each)
        count = 0 if match is None else int(match["count"])
        if match is None or not count:
            raise UserError(f"--device {given}: expected NAME:NUMBER in each part, got: '{each}'")
        found.append(Group(match["name"], count))
    return found


def _grouped(name: str, groups: Sequence[Group], between: Link | None = None) -> Device:
    """Return the description of unlike devices; by default their slower network connects them."""
    every = [own.device for own in groups]
    if any(own.groups for own in every):
        raise UserError(f"--device {name}: expected groups of like devices, got: groups of groups")
    slowest = min(every, key=lambda own: own.product_flop_per_s)
    sizes = [own.memory_capacity_bytes for own in every]
    known = [size for size in sizes if size is not None]
    return replace(
        slowest,
        name=name,
        memory_capacity_bytes=min(known, default=None),
        # Blocks of this many consecutive ranks are on one node, which has devices of one group.
        devices_per_node=math.gcd(
            *(own.count for own in groups), *(own.devices_per_node for own in every)
        ),
        network=between or _slowest([own.network for own in every]),
        groups=tuple(groups),
        provider="cpu" if all(own.provider == "cpu" for own in every) else "cuda",
        architectures=_all_architectures(every),
    )


def _all_architectures(devices: Sequence[Device]) -> tuple[int, ...]:
    if not all(own.architectures for own in devices):
        return ()
    return tuple(sorted({number for own in devices for number in own.architectures}))


def _slowest(links: Sequence[Link]) -> Link:
    return Link(
        max(own.latency_s for own in links), min(own.bandwidth_bytes_per_s for own in links)
    )


def _joined(device: Device, name: str, other: Device, other_name: str) -> Device:
    if device.machine is None or device.machine != other.machine:
        kinds = [str(own.machine or "nothing measured") for own in (device, other)]
        raise UserError(
            f"--device {other_name}: expected a description measured on the same kind of machine "
            f"as {name} ({kinds[0]}), got: {kinds[1]}"
        )
    return replace(
        device,
        operators={**other.operators, **device.operators},
        collectives={**other.collectives, **device.collectives},
        expected_error=worse(device.expected_error, other.expected_error),
        measured_models=tuple(dict.fromkeys((*device.measured_models, *other.measured_models))),
    )


def description_text(name_or_path: str) -> str:
    """Return the text of a description, of an included device or of a file.

    Raises :class:`UserError` for an unknown name and an unreadable file.
    """
    return _text(_path(name_or_path))


def _loaded(name_or_path: str) -> Device:
    path = _path(name_or_path)
    return device_of(_text(path), str(path))


def _path(name_or_path: str) -> Path:
    is_path = name_or_path.endswith(".toml") or "/" in name_or_path
    if not is_path and name_or_path not in device_names():
        names = ", ".join(device_names())
        raise UserError(
            f"--device: expected one of {names} or the path of a .toml file, "
            f"got: '{name_or_path}'{did_you_mean(name_or_path, device_names())}"
        )
    return Path(name_or_path) if is_path else _FOLDER / f"{name_or_path}.toml"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        wrong = error.strerror or str(error)
        raise UserError(f"--device {path}: expected a readable file, got: {wrong}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected TOML, got: {error}") from None


def device_of(text: str, name: str) -> Device:
    """Return the device described by TOML ``text``; ``name`` is the file name for errors.

    Raises :class:`UserError` if the description is invalid.
    """
    import tomllib

    try:
        table = Table(name, "", tomllib.loads(text))
        return _cluster(table, Path(name).parent) if "groups" in table.names() else _device(table)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name}: expected TOML, got: {error}") from None


def _cluster(table: Table, folder: Path) -> Device:
    """Return the description of groups; paths of their descriptions begin at ``folder``."""
    numbers, links = table.table("groups"), table.optional("link")
    groups = [Group(_located(folder, name), numbers.count(name)) for name in numbers.names()]
    between = _link(links.table("between_groups")) if links.names() else None
    device = _grouped(table.text("name"), groups, between)
    for part in (links, table):
        part.reject_unread()
    return device


def _located(folder: Path, name: str) -> str:
    return str(folder / name) if name.endswith(".toml") else name


def _device(table: Table) -> Device:
    memory, efficiency = table.table("memory"), table.table("efficiency")
    links = table.table("link")
    device = Device(
        name=table.text("name"),
        peaks=_peaks(table.table("peak_flop_per_s")),
        contraction_efficiency=efficiency.number("contraction", at_most=1.0),
        memory_bandwidth_bytes_per_s=memory.number("bandwidth_bytes_per_s"),
        memory_capacity_bytes=_capacity_bytes(memory),
        launch_overhead_s=table.number("launch_overhead_s", at_least=LEAST_LAUNCH_S),
        devices_per_node=table.count("devices_per_node"),
        intra_node=_link(links.table("intra_node")),
        network=_link(links.table("network")),
        step_overhead_s=table.amount("step_overhead_s"),
        host_launch_s=table.maybe("host_launch_s"),
        operators=read_operators(table.optional("operator")),
        collectives=read_collectives(table.optional("collective")),
        kernels=_kernels(table.optional("kernel")),
        waiting=read_waiting(table.optional("waiting")),
        process=read_process(table.optional("process")),
        overlap=read_overlap(table.optional("overlap")),
        expected_error=read_expected_error(table.optional("expected_error")),
        measured_models=read_measured_models(table.tables("measured_model")),
        machine=read_machine(table.optional("measured_on")),
    )
    capability = table.maybe("compute_capability")
    device = replace(
        device,
        provider=_provider(table, device.machine),
        architectures=() if capability is None else (round(10 * capability),),
    )
    for part in (memory, efficiency, links, table):
        part.reject_unread()
    return device


def _provider(table: Table, machine: Machine | None) -> str:
    """Return the execution provider; CUDA's, unless the description says so or was measured."""
    measured = "cuda" if machine is None else machine.provider
    return table.maybe_text("provider") or measured


def _capacity_bytes(memory: Table) -> int | None:
    is_known = memory.maybe("capacity_bytes") is not None
    return int(memory.number("capacity_bytes")) if is_known else None


def _peaks(table: Table) -> tuple[tuple[str, float], ...]:
    check_types(table)
    return table.numbers("float32")


def _kernels(table: Table) -> dict[tuple[str, str], SizeTable]:
    found = {}
    for family in table.names():
        if family not in FAMILIES:
            raise UserError(
                f"{table.where(family)}: expected one of {', '.join(FAMILIES)}, got: '{family}'"
            )
        types = table.table(family)
        check_types(types)
        for dtype in types.names():
            own = types.table(dtype)
            found[family, dtype] = read_size_table(own, FAMILIES[family])
            own.reject_unread()
    return found


def _link(table: Table) -> Link:
    link = Link(table.number("latency_s"), table.number("bandwidth_bytes_per_s"))
    table.reject_unread()
    return link

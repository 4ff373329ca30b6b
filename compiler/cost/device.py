"""Device descriptions: what one rank can compute, hold and send, read from TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from tensoropt.compiler.cost.expected import (
    ExpectedError,
    MeasuredModel,
    PlanError,
    is_known,
    read_expected_error,
    read_measured_models,
    worse,
)
from tensoropt.compiler.cost.fields import Table
from tensoropt.compiler.cost.machine import Machine, read_machine
from tensoropt.compiler.cost.measured import (
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
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.support.errors import UserError, did_you_mean

__all__ = ["Device", "Link", "device_names", "device_of", "load_device"]

_FOLDER = Path(__file__).with_name("devices")

# Every step takes a time that rounding cannot swallow, so that paths of steps never go in circles.
_LEAST_LAUNCH_S = 1e-9


@dataclass(frozen=True)
class Link:
    """What joins ranks: the start of a message, and the bytes one rank sends per second."""

    latency_s: float
    bandwidth_bytes_per_s: float


@dataclass(frozen=True)
class Device:
    """What one rank of a job runs on.

    ``peaks`` holds (NumPy type name, FLOP/s); ``contraction_efficiency`` is the part of the peak
    that large products reach. Ranks ``[k * devices_per_node, (k + 1) * devices_per_node)`` share a
    node and talk over ``intra_node``; others over ``network``. ``step_overhead_s``
    is what running a graph takes besides its nodes. ``operators`` and ``collectives``
    hold what was measured, by (ONNX name, NumPy type) and by (kind, ranks of a group).
    ``waiting`` is by number of ranks how much longer steps take as they wait for each other.
    ``process`` is what a process takes beside tensors, ``None`` where nobody measured it.
    ``overlap`` is what it takes to let collectives run beside operators, ``None`` where none do.
    ``expected_error`` says how far predictions were off, ``None`` where nothing was measured;
    ``measured_models`` whose plans they were held against, ``machine`` on what kind of machine.
    """

    name: str
    peaks: tuple[tuple[str, float], ...]
    contraction_efficiency: float
    memory_bandwidth_bytes_per_s: float
    memory_capacity_bytes: int
    launch_overhead_s: float
    devices_per_node: int
    intra_node: Link
    network: Link
    step_overhead_s: float = 0.0
    operators: Operators = field(default_factory=dict, hash=False)
    collectives: Collectives = field(default_factory=dict, hash=False)
    waiting: Mapping[int, Waiting] = field(default_factory=dict, hash=False)
    process: Process | None = None
    overlap: Overlap | None = None
    expected_error: ExpectedError | None = None
    measured_models: tuple[MeasuredModel, ...] = ()
    machine: Machine | None = None

    def waits(self, ranks: int) -> Waiting:
        """Return how ``ranks`` wait for each other: as the next larger number that was measured,
        else as the largest."""
        if ranks == 1 or not self.waiting:
            return Waiting()
        known = [count for count in self.waiting if count >= ranks]
        return self.waiting[min(known, default=max(self.waiting))]

    def plan_error(self, model: Path | None, *, training: bool) -> PlanError | None:
        """Return what to expect of a plan of the model in a file; ``None`` if nobody measured."""
        if self.expected_error is None and self.machine is None:
            return None
        known = is_known(self.measured_models, model, training=training)
        return (self.expected_error or ExpectedError()).of_plan(known=known)

    @property
    def overlaps(self) -> bool:
        """Whether something is gained where collectives run beside operators."""
        return self.overlap is not None and self.overlap.share < 1

    def without_overlap(self) -> Device:
        """Return the same device where no collective runs beside operators."""
        return replace(self, overlap=None)

    def with_ample_memory(self) -> Device:
        """Return the same device where collectives begin as early as they gain, though a program
        then takes more memory."""
        overlap = None if self.overlap is None else replace(self.overlap, keeps_peak=False)
        return replace(self, overlap=overlap)

    def process_bytes(self, held: Footprint, ranks: int) -> int:
        """Return what the process of a rank takes; its tensors, where nobody measured the rest."""
        if self.process is None:
            return held.static_bytes + held.transient_bytes
        return self.process.bytes(held, ranks)

    def rest_bytes(self, ranks: int) -> int:
        """Return what a process takes before it has tensors, 0 where nobody measured it."""
        return 0 if self.process is None else self.process.rest_bytes(ranks)

    def peak_flop_per_s(self, dtype: str) -> float:
        """Return the peak rate of a NumPy type name; a type not listed runs at float32's rate."""
        peaks = dict(self.peaks)
        return peaks.get(dtype, peaks["float32"])

    def axis_links(self, mesh: Mesh) -> tuple[Link, ...]:
        """Return the link of each mesh axis: ``intra_node`` if all its groups stay in a node.

        Ranks are row-major, so the groups of an axis tile blocks of consecutive ranks, and stay
        within nodes exactly when a node holds whole blocks or all ranks.
        """
        links, block = [], 1
        for extent in reversed(mesh.shape):
            block *= extent
            fits = mesh.size <= self.devices_per_node or self.devices_per_node % block == 0
            links.append(self.intra_node if fits or extent == 1 else self.network)
        return tuple(reversed(links))


def device_names() -> list[str]:
    """Return the names of the devices that come with tensoropt, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


@cache
def load_device(given: str) -> Device:
    """Return a device by its name, or from a file if the argument is a path or ends in ``.toml``.

    Several, with commas between them, are one: what was measured in any of them is known, and of
    what several know, and of all else, that of the first counts.
    Raises :class:`UserError` for an unknown name, for a file that cannot be read or is wrong, and
    for descriptions that were not measured on one kind of machine.
    """
    first, *others = given.split(",")
    device = _loaded(first)
    for name in others:
        device = _joined(device, first, _loaded(name), name)
    return device


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


def _loaded(name_or_path: str) -> Device:
    is_path = name_or_path.endswith(".toml") or "/" in name_or_path
    if not is_path and name_or_path not in device_names():
        names = ", ".join(device_names())
        raise UserError(
            f"--device: expected one of {names} or the path of a .toml file, "
            f"got: '{name_or_path}'{did_you_mean(name_or_path, device_names())}"
        )
    path = Path(name_or_path) if is_path else _FOLDER / f"{name_or_path}.toml"
    return device_of(_text(path), str(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        wrong = error.strerror or str(error)
        raise UserError(f"--device {path}: expected a readable file, got: {wrong}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected TOML, got: {error}") from None


def device_of(text: str, name: str) -> Device:
    """Return the device that TOML describes; ``name`` is its file's, for errors.

    Raises :class:`UserError` for what is wrong with it.
    """
    try:
        return _device(Table(name, "", tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name}: expected TOML, got: {error}") from None


def _device(table: Table) -> Device:
    memory, efficiency = table.table("memory"), table.table("efficiency")
    links = table.table("link")
    device = Device(
        name=table.text("name"),
        peaks=_peaks(table.table("peak_flop_per_s")),
        contraction_efficiency=efficiency.number("contraction", at_most=1.0),
        memory_bandwidth_bytes_per_s=memory.number("bandwidth_bytes_per_s"),
        memory_capacity_bytes=int(memory.number("capacity_bytes")),
        launch_overhead_s=table.number("launch_overhead_s", at_least=_LEAST_LAUNCH_S),
        devices_per_node=table.count("devices_per_node"),
        intra_node=_link(links.table("intra_node")),
        network=_link(links.table("network")),
        step_overhead_s=table.amount("step_overhead_s"),
        operators=read_operators(table.optional("operator")),
        collectives=read_collectives(table.optional("collective")),
        waiting=read_waiting(table.optional("waiting")),
        process=read_process(table.optional("process")),
        overlap=read_overlap(table.optional("overlap")),
        expected_error=read_expected_error(table.optional("expected_error")),
        measured_models=read_measured_models(table.tables("measured_model")),
        machine=read_machine(table.optional("measured_on")),
    )
    for part in (memory, efficiency, links, table):
        part.reject_unread()
    return device


def _peaks(table: Table) -> tuple[tuple[str, float], ...]:
    check_types(table)
    return table.numbers("float32")


def _link(table: Table) -> Link:
    link = Link(table.number("latency_s"), table.number("bandwidth_bytes_per_s"))
    table.reject_unread()
    return link

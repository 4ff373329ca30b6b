"""Notes on a search: left-out meshes, why it ended, and its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from tensoropt.compiler.planning.pinned_search import PinsCost
from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.search.frontier.points import (
    Point,
    ReplicaRow,
    mesh_name,
    names_of,
    overfull_of,
)
from tensoropt.compiler.support.units import format_bytes
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import MISSING, MODEL, UNTIED
from tensoropt.runtime.plan.dims import dim_flags
from tensoropt.runtime.plan.pins import pins_cost_text

__all__ = [
    "endings",
    "ignored_annotations",
    "interruption",
    "missing_files",
    "omissions",
    "open_lengths",
    "open_sizes",
    "open_turns",
    "passed_over_note",
    "pins_line",
    "ranks_note",
    "replicas_note",
    "tensor_limit_note",
    "undivided_note",
    "unsplit_note",
]

_SHOWN = 8


def omissions(frontier: FrontierReport) -> Iterator[str]:
    """Yield a line per reason why meshes were left out."""
    ordered = sorted(frontier.left_out, key=lambda left: left.reason)
    for reason, group in groupby(ordered, key=lambda left: left.reason):
        meshes, axes = [left.mesh for left in group], frontier.axes
        if axes is not None and len(meshes) > _SHOWN and min(map(len, meshes)) > axes:
            named = f"{len(meshes)} meshes of more than {axes} axes"
        else:
            more = f" and {len(meshes) - _SHOWN} more" if len(meshes) > _SHOWN else ""
            names = ", ".join(mesh_name(mesh) for mesh in meshes[:_SHOWN])
            named = f"mesh{'es' if len(meshes) > 1 else ''} {names}{more}"
        yield f"note: {named}: left out, {reason}"


def endings(frontier: FrontierReport, *, anytime: bool) -> Iterator[str]:
    """Yield how to continue a search that ended by its default limits, or that no time would help.

    ``anytime``: the request has neither a bound nor a time limit.
    """
    if frontier.interrupted:
        return
    if frontier.stopped == "tables":
        bound = "the bound" if frontier.epsilon is None else f"the bound of {frontier.epsilon:.2%}"
        yield (
            f"note: {bound} is final, and more --search-time does not lower it: the cost tables of "
            "the search are at their finest, and the plans cost more than these say"
        )
    elif anytime and frontier.stopped:
        yield (
            f"note: the search ended {frontier.ended}; --search-time 60 gives it a minute, "
            "--epsilon 0.01 continues until the frontier is within 1%"
        )


def pins_line(cost: PinsCost | None) -> str:
    """Return the line on the cost of the pins relative to the points without pins."""
    if cost is None:
        return "pins cost: unknown, the search without them ran out of time"
    return f"pins cost: {pins_cost_text({'time': cost.time, 'memory': cost.memory})}"


def passed_over_note(first: Point, chosen: Point) -> str:
    """Return the line on a point that was not picked, because it is above the capacity."""
    over = overfull_of(first)
    assert over is not None
    return (
        f"note: point {first.index} needs {format_bytes(over.need_bytes)} per device, "
        f"{over.device} has {format_bytes(over.capacity_bytes)}: picked point {chosen.index}, "
        "which fits"
    )


def ranks_note(devices: Sequence[str], size: int) -> str:
    """Return the line on the ranks of unlike devices; ``devices`` has one for each stage.

    A stage has ``size`` ranks.
    """
    parts, begin = [], 0
    for name, group in groupby(devices):
        end = begin + len([*group]) * size
        parts.append(f"{_ranks(begin, end - 1)} on {name}")
        begin = end
    return f"note: run {', '.join(parts)}"


def replicas_note(rows: Sequence[ReplicaRow], size: int) -> str:
    """Return the line on the parts that replicas take, each of ``size`` ranks."""
    total = sum(row.micro_batches for row in rows)
    parts = [
        f"{_ranks(number * size, (number + 1) * size - 1)} on {row.device}: "
        f"{row.micro_batches}{_samples(row)}"
        for number, row in enumerate(rows)
    ]
    return f"note: of {total} micro-batches run, {', '.join(parts)}"


def _samples(row: ReplicaRow) -> str:
    if row.samples is None:
        return ""
    return f" ({row.samples} sample{'s' if row.samples > 1 else ''})"


def _ranks(first: int, last: int) -> str:
    return f"rank {first}" if first == last else f"ranks {first} to {last}"


def tensor_limit_note(device: str) -> str:
    """Return the line on a memory limit if the process memory was not measured on the device."""
    return (
        f"note: --memory limits tensors alone: {device} has no [process], which has the memory "
        "of a process beside tensors"
    )


def interruption(epsilon: float | None, *, left_out: bool = False) -> str:
    """Return the line on the results of an interrupted search, with the bound that it proves."""
    bound = "with no bound on what is missing"
    if epsilon is not None:
        bound = f"within {epsilon:.2%} of the exact frontier"
        bound += " of the meshes searched" if left_out else ""
    return f"interrupted: these are the results so far, {bound}"


def ignored_annotations(name: str, configurations: Sequence[str]) -> str:
    """Return the line on a model with annotations that were not requested as pins."""
    listed = ", ".join(f"'{name}'" for name in configurations)
    return (
        f"note: {name} has annotations for the configuration{'s'[: len(configurations) > 1]} "
        f"{listed}, which are ignored: --pins {name} takes them as pins"
    )


def open_sizes(names: Sequence[str]) -> str:
    """Return the line on the open dimensions of a model, by name."""
    listed, flags = _list_open(names, "8")
    if len(names) == 1:
        return f"note: without a size {listed} counts as 1 and is not split: {flags} gives it one"
    return f"note: without sizes {listed} count as 1 and are not split: {flags} gives them"


def open_lengths(names: Sequence[str]) -> str:
    """Return the line on open numbers of tokens in the caches of a decoder, by name."""
    listed, flags = _list_open(names, "1..N")
    counts = "counts" if len(names) == 1 else "count"
    return f"note: {listed} {counts} as 1: {flags} plans for texts of up to N tokens"


def _list_open(names: Sequence[str], size: str) -> tuple[str, str]:
    """Return the first names of dimensions and the number of others, and flags with a ``size``."""
    shown = names[:_SHOWN]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"'{name}'" for name in shown) + more, dim_flags(shown, size)


def missing_files(module: ir.Module) -> Iterator[str]:
    """Yield the line on files of weights that were missing when ``module`` was imported."""
    attributes = module.operation.attributes
    names, model = MISSING.get(attributes, []), MODEL.get(attributes, "the model")
    if not names:
        return
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    listed = ", ".join(names[:_SHOWN]) + more
    ties = ": copies of tied weights are not recognised, and count twice"
    rest = ties if UNTIED.on(attributes) else ""
    yield f"note: {model} was read without {listed}, missing on disk{rest}"


def open_turns(names: Sequence[str]) -> str:
    """Return the line on loop bodies with an unknown number of iterations, by node."""
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    if len(names) == 1:
        return f"note: the body of {shown} may run any number of times and counts once"
    return f"note: the bodies of {shown}{more} may run any number of times and count once each"


def unsplit_ops_note(shares: Mapping[str, float], devices: int) -> str:
    """Return the line on operators that no strategy splits, with their fractions of the time."""
    shown = [f"{op} {share:.0%}" for op, share in list(shares.items())[:_SHOWN]]
    more = f" and {len(shares) - _SHOWN} more" if len(shares) > _SHOWN else ""
    return (
        f"note: {sum(shares.values()):.0%} of the work is whole on each of {devices} devices, as "
        f"nothing splits these operators at these sizes: {', '.join(shown)}{more} (--explain)"
    )


def undivided_note(
    frontier: FrontierReport, point: Point, parts: int, odd: int, better: int
) -> str:
    """Return the line on a plan that splits its work in ``parts``, as ``odd`` divides too little.

    ``better`` is a number of devices that divides most of the work, 0 if no number does.
    """
    reason = "next to none of it can be split at these sizes"
    if better:
        reason = f"{odd} divides next to none of the work, expected --devices {better}"
    return f"note: {_split(frontier, point, parts)}: {reason}"


def unsplit_note(frontier: FrontierReport, point: Point, parts: int) -> str:
    """Return the line on a plan that splits its work in ``parts``, though it could in more."""
    leaner = frontier.points[-1].process_bytes < point.process_bytes
    lean = ", or --pick leanest for less memory" if leaner else ""
    reason = "at these sizes more would cost time, expected a larger batch"
    return f"note: {_split(frontier, point, parts)}: {reason}{lean}"


def _split(frontier: FrontierReport, point: Point, parts: int) -> str:
    is_fastest = "fastest" in names_of(frontier.points).get(point.index, ())
    plan = "the fastest plan" if is_fastest else f"plan {point.index}"
    split = f"splits the work in {parts}" if parts > 1 else "does not split the work"
    return f"{plan} {split} on {frontier.devices} devices"

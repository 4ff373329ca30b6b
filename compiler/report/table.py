"""Reports as aligned tables, in colour on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tensoropt.compiler.exporter.standard.cache_effect import Effect
from tensoropt.compiler.report.expected import expected_line
from tensoropt.compiler.report.frontier import FrontierReport, ScalingReport
from tensoropt.compiler.report.memory import beside_bytes
from tensoropt.compiler.search.frontier.points import (
    ABOVE_CAPACITY,
    Point,
    interval_of,
    latency_of,
    marks,
    mesh_name,
    micro_batches_of,
    recompute_of,
    replicas_of,
    schedule_of,
    split_name,
    stages_of,
)
from tensoropt.compiler.support.units import format_bytes, format_seconds

__all__ = [
    "counted",
    "effect_lines",
    "frontier_rows",
    "frontier_table",
    "profile_rows",
    "profile_table",
    "render",
]

_FIGURES = ("time", "compute", "communication", "memory", "static", "transient")
_TIMES = 3

_HIDDEN = "hidden"
"""Column of the communication that overlaps with operators, if any point has some."""

_STREAM = ("latency", "interval")
"""Columns of a stream of inputs, if any point has stages in inference."""

_BESIDE = "beside"
"""Column of process memory other than tensors, if the device description predicts it."""


def frontier_table(frontier: FrontierReport, *, colour: bool = False) -> str:
    """Return a row per point with its marks, effects of 8-bit caches, and the expected error."""
    effects = effect_lines(frontier.effects)
    return f"{render(*frontier_rows(frontier), colour)}{effects}{_expected(frontier)}"


def effect_lines(effects: Mapping[str, Effect]) -> str:
    """Return a line on the 8-bit caches of each model that has some."""
    return "".join(f"{model}: {effect}\n" for model, effect in effects.items())


def _replicas(point: Point) -> str:
    """Return the micro-batches of each replica, such as 6+2; a dash without replicas."""
    return "+".join(str(row.micro_batches) for row in replicas_of(point)) or "-"


_WAYS: Mapping[str, Callable[[Point], object]] = {
    "stages": stages_of,
    "schedule": schedule_of,
    "replicas": _replicas,
    "recompute": recompute_of,
    "micro-batches": micro_batches_of,
}
"""Columns that a table has if its points differ in them, or have stages or replicas."""

_ALONE: Mapping[str, object] = {"stages": 1, "replicas": "-"}
"""The cells of points on one mesh."""


def frontier_rows(frontier: FrontierReport) -> tuple[str, list[str], list[list[str]]]:
    """Return the title, the header and the cells of :func:`frontier_table`."""
    named = {index: ", ".join(names) for index, names in marks(frontier.points).items()}
    ways = {name: {of(point) for point in frontier.points} for name, of in _WAYS.items()}
    own = {
        name: of
        for name, of in _WAYS.items()
        if len(ways[name]) > 1 or (name in _ALONE and ways[name] != {_ALONE[name]})
    }
    if frontier.forms:
        own = {"model": lambda point: frontier.forms[point.index], **own}
    figures = _figures(frontier.shown)
    rows = [
        [
            str(p.index),
            *(str(of(p)) for of in own.values()),
            *_cells(p, figures),
            named.get(p.index, ""),
        ]
        for p in frontier.shown
    ]
    title = f"{frontier.model} on {frontier.devices} x {frontier.device}: {counted(frontier)}"
    return title, ["index", *own, "mesh", *figures, ""], rows


def profile_table(profile: ScalingReport, *, colour: bool = False) -> str:
    """Return a row per number of devices, with the speed-up over the first row that fits."""
    return f"{render(*profile_rows(profile), colour)}{_expected(profile)}"


def _expected(report: FrontierReport | ScalingReport) -> str:
    return f"{expected_line(report.error, report.device)}\n"


def profile_rows(profile: ScalingReport) -> tuple[str, list[str], list[list[str]]]:
    """Return the title, the header and the cells of :func:`profile_table`."""
    first = next((point for _, point in profile.rows if point), None)
    rows = []
    figures = _figures([point for _, point in profile.rows if point])
    for devices, point in profile.rows:
        if point is None or first is None:
            rows.append([str(devices), *["-"] * (len(figures) + 1), "does not fit"])
            continue
        cells = [split_name(point), *_cells(point, figures)[1:]]
        rows.append([str(devices), *cells, f"{first.time_s / point.time_s:.2f}x"])
    header = ["devices", "mesh", *figures, "speed-up"]
    return f"{profile.model} on {profile.device}: fastest, per device", header, rows


def counted(frontier: FrontierReport) -> str:
    """Return the words on the number of points, of found points, and the bound."""
    count = len(frontier.points)
    whole = f"{count} point{'' if count == 1 else 's'}"
    if frontier.found > count:
        whole += f" (of {frontier.found} found)"
    shown = f"one of {whole}" if frontier.narrowed else whole
    return f"{shown}{_bound(frontier)}{_left_out_text(frontier)}{_above_text(frontier)}, per device"


def _above_text(frontier: FrontierReport) -> str:
    """Return the words on the number of points above the capacity; empty for none."""
    above, count = frontier.overfull, len(frontier.points)
    if not above:
        return ""
    sizes = {own.capacity_bytes for own in above}
    memory = format_bytes(sizes.pop()) if len(sizes) == 1 else "memory"
    return f", {'all' if len(above) == count else len(above)} above the {memory} of a device"


def _bound(frontier: FrontierReport) -> str:
    """Return the words on the bound of a search that is not exact."""
    epsilon, time_epsilon = frontier.epsilon, frontier.time_epsilon
    after = f" {frontier.ended}" if frontier.ended else ""
    if epsilon is not None:
        of = "" if frontier.axes is None else f" of meshes of up to {_axes(frontier.axes)}"
        of += " by cost tables" if frontier.by_tables else ""
        exact = f" of the exact frontier{of}{after}" if of else after
        return f" within {epsilon:.2%} of the exact frontier{of}{after}" if epsilon else exact
    if time_epsilon is None or not math.isfinite(time_epsilon):
        return f", no bound{after}"
    return f", within {time_epsilon:.2%} of the least time" if time_epsilon else ", least time"


def _axes(count: int) -> str:
    words = ("no axis", "one axis", "two axes", "three axes")
    return words[count] if count < len(words) else f"{count} axes"


def _left_out_text(frontier: FrontierReport) -> str:
    if frontier.axes is not None:
        return ""
    meshes = [mesh_name(left.mesh) for left in frontier.left_out]
    if len(meshes) > 3:
        return f", without {len(meshes)} meshes"
    return f", without mesh {', '.join(meshes)}" if meshes else ""


def _figures(points: Sequence[Point]) -> list[str]:
    """Return the columns of figures; those of overlap and processes only if a point has them."""
    times, sizes = list(_FIGURES[:_TIMES]), list(_FIGURES[_TIMES:])
    times += [_HIDDEN] if any(point.hidden_s for point in points) else []
    times += _STREAM if any(latency_of(point) != interval_of(point) for point in points) else []
    return [*times, *sizes, *([_BESIDE] if any(map(beside_bytes, points)) else [])]


def _cells(point: Point, figures: Sequence[str]) -> list[str]:
    times = [point.time_s, point.compute_s, point.communication_s]
    times += [point.hidden_s] if _HIDDEN in figures else []
    times += [latency_of(point), interval_of(point)] if _STREAM[0] in figures else []
    sizes = [point.process_bytes, point.static_bytes, point.transient_bytes]
    sizes += [beside_bytes(point)] if _BESIDE in figures else []
    mesh = mesh_name(point.mesh)
    return [mesh, *map(format_seconds, times), *map(format_bytes, sizes)]


def render(title: str, header: list[str], rows: Sequence[Sequence[str]], colour: bool) -> str:
    """Return a table of right-aligned columns; the last column is left-aligned."""
    return _rich(title, header, rows) if colour else _plain(title, header, rows)


def _plain(title: str, header: list[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    text = [title]
    for line in lines:
        *figures, last = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        text.append("  ".join([*figures, last.strip()]).rstrip())
    return "\n".join(text) + "\n"


def _rich(title: str, header: list[str], rows: Sequence[Sequence[str]]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", title=title, title_justify="left")
    for name in header[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(header[-1])
    for row in rows:
        style = "bold green" if "knee" in row[-1] else None
        table.add_row(*row, style="dim" if ABOVE_CAPACITY in row[-1] else style)
    # Full width: rich would cut cells, while a narrow terminal wraps rows and loses no figure.
    console = Console(
        force_terminal=True, width=max(map(len, _plain(title, header, rows).split("\n"))) + 40
    )
    with console.capture() as capture:
        console.print(table)
    return capture.get()

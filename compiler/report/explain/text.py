"""Text form of an explanation: equal layers are printed once, with a count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from tensoropt.compiler.report.expected import expected_line
from tensoropt.compiler.report.explanation import (
    Change,
    Communication,
    Explanation,
    Layer,
    Memory,
    Neighbour,
    Operation,
    StagedStep,
    Tensor,
)
from tensoropt.compiler.report.memory import BESIDE, memory_name
from tensoropt.compiler.search.frontier.points import ABOVE_CAPACITY, mesh_name, split_words
from tensoropt.compiler.support.phases import STEP_PARTS
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.runtime.plan.pins import pins_lines
from tensoropt.runtime.stages.schedule import WORKS

__all__ = ["explanation_text"]

_COSTLY, _TENSORS, _CHANGES = 5, 5, 8
_MOMENTS = 80  # of a timeline of stages


def explanation_text(explanation: Explanation) -> str:
    """Return an explanation as text: layers, costliest steps, memory and neighbours."""
    several = [_stages] if explanation.staged else [_replicas] if explanation.replicas else []
    parts = [_head, *several, _layers, _costly, _memory, _next]
    return "\n".join("\n".join(part(explanation)) + "\n" for part in parts)


def _head(plan: Explanation) -> Iterator[str]:
    marks = f" ({', '.join(plan.marks)})" if plan.marks else ""
    yield (
        f"{plan.model} on {plan.devices} x {plan.device}, point {plan.index} of {plan.points}"
        f"{marks}: {format_seconds(plan.time_s)} and {format_bytes(plan.process_bytes)} per device"
    )
    named = (f"{n} has {size}" for n, size in zip(plan.axes, plan.mesh, strict=True))
    yield f"mesh {mesh_name(plan.mesh)}: axis {', '.join(named)} devices"
    sent = plan.communication_s
    hidden = f", {format_seconds(plan.hidden_s)} of it hidden by operators" if plan.hidden_s else ""
    yield (
        f"time: compute {format_seconds(plan.compute_s)}, "
        f"communication {format_seconds(sent)} ({_share(sent, plan.time_s)}){hidden}"
    )
    yield expected_line(plan.expected_error, plan.device, plan.part_shares)
    if plan.staged is None:
        yield _sizes(plan.memory)
    if plan.recompute is not None:
        update = format_seconds(plan.update_s)
        count = plan.micro_batches or 1
        several = f" in {count} micro-batches" if count > 1 else ""
        yield (
            f"training: recomputes {plan.recompute}{several}; the update takes {update} of the step"
        )
    yield from pins_lines(plan.pins)


def _stages(plan: Explanation) -> Iterator[str]:
    """Yield a line per stage, and a timeline of each."""
    staged = plan.staged
    assert staged is not None
    yield f"pipeline: {len(staged.stages)} stages of mesh {mesh_name(plan.mesh)}, {staged.about}"
    head = ["stage", "chunks", "busy", "idle", "memory", "static", "in flight", "sends", "to"]
    rows = [
        [
            str(number),
            ",".join(map(str, row.chunks)),
            format_seconds(row.busy_s),
            format_seconds(row.idle_s),
            format_bytes(row.memory_bytes),
            format_bytes(row.static_bytes),
            format_bytes(row.kept_bytes),
            format_bytes(row.sent_bytes),
            ",".join(map(str, row.sends_to)) or "-",
        ]
        for number, row in enumerate(staged.stages)
    ]
    if staged.stages[0].device is not None:
        head.append("device")
        for cells, row in zip(rows, staged.stages, strict=True):
            cells.append(row.device or "")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for cells in (head, *rows):
        yield "  " + "  ".join(f"{cell:>{n}}" for cell, n in zip(cells, widths, strict=True))
    works = ", ".join(f"{work} {name}" for work, name in staged.works.items())
    unit = "micro-batch" if staged.latency_s is None else "input"
    yield (
        f"timeline of {format_seconds(staged.end_s)}: {works}, . no task; sends are for each {unit}"
    )
    for number, line in enumerate(_timelines(staged)):
        yield f"  {number:>{widths[0]}}  {line}"


def _replicas(plan: Explanation) -> Iterator[str]:
    """Yield a line per replica."""
    total = sum(row.micro_batches for row in plan.replicas)
    yield f"replicas of mesh {mesh_name(plan.mesh)}, which take parts of {total} micro-batches"
    cells = [
        [
            str(n),
            row.device,
            str(row.micro_batches),
            _count(row.samples),
            format_seconds(row.busy_s),
        ]
        for n, row in enumerate(plan.replicas)
    ]
    head = ["replica", "device", "micro-batches", "samples", "busy"]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    for row in (head, *cells):
        yield "  " + "  ".join(f"{cell:>{n}}" for cell, n in zip(row, widths, strict=True))


def _count(samples: int | None) -> str:
    return "-" if samples is None else str(samples)


def _timelines(staged: StagedStep) -> Iterator[str]:
    """Yield a line of letters per stage: the work that takes most of each moment."""
    moment_s = staged.end_s / _MOMENTS or 1.0
    for stage in range(len(staged.stages)):
        spent = [dict.fromkeys((".", *WORKS), 0.0) for _ in range(_MOMENTS)]
        for task in staged.tasks:
            if task.stage == stage:
                first = min(int(task.start_s / moment_s), _MOMENTS - 1)
                last = min(int(task.end_s / moment_s), _MOMENTS - 1)
                for at in range(first, last + 1):
                    begin_s = max(task.start_s, at * moment_s)
                    end_s = min(task.end_s, (at + 1) * moment_s)
                    spent[at][task.work] += max(end_s - begin_s, 0.0)
        for own in spent:
            own["."] = moment_s - sum(own.values())
        yield "".join(max(own, key=lambda work: own[work]) for own in spent)


def _sizes(memory: Memory) -> str:
    """Return the line on the parts of memory, whole processes or tensors alone."""
    name = memory_name(whole=memory.beside_bytes > 0)
    parts = ", ".join(f"{kind} {format_bytes(n)}" for kind, n in memory.static_parts.items())
    static = f"static {format_bytes(memory.static_bytes)}{f' ({parts})' if parts else ''}"
    beside = f", {BESIDE} {format_bytes(memory.beside_bytes)}" if memory.beside_bytes else ""
    return f"{name}: {static}, transient {format_bytes(memory.transient_bytes)}{beside}"


def _layers(plan: Explanation) -> Iterator[str]:
    on = ", all on one stage" if plan.staged else ""
    on = ", all micro-batches on the slowest replica" if plan.replicas else on
    yield f"layers, with the time of each op and collective{on}"
    for layer in plan.layers:
        yield f"  {_title(layer)}"
        for phase in ("", *STEP_PARTS):
            yield from _phase(layer, phase)


def _title(layer: Layer) -> str:
    count = f", {layer.count} identical" if layer.count > 1 else ""
    each = " each" if layer.count > 1 else ""
    sent = sum(not moved.is_copy for moved in layer.communication)
    text = f"{layer.title}{count}: {format_seconds(layer.time_s)}{each}"
    if not layer.communication:
        return f"{text}, no communication"
    what = f"{sent} collective{'s' if sent != 1 else ''}" if sent else "local copies"
    return f"{text}, {format_seconds(layer.communication_s)} of it in {what}"


def _phase(layer: Layer, phase: str) -> Iterator[str]:
    own = [op for op in layer.operations if op.phase == phase]
    moved = [row for row in layer.communication if row.phase == phase]
    if not own and not moved:
        return
    if phase:
        yield f"    {phase}"
    rows: list[Operation | Communication] = [*(op for op in own if op.main), *moved]
    for _, group in groupby(sorted(rows, key=lambda row: row.entry), key=_line):
        same = list(group)
        yield f"    {_time(sum(row.time_s for row in same))}  {_text(same, layer)}"
    rest = [op for op in own if not op.main]
    if rest:
        yield f"    {_time(sum(op.time_s for op in rest))}  {_others(rest)}"


def _line(row: Operation | Communication) -> object:
    """Return a key that is equal for adjacent rows which share a line: ops that split no weight."""
    if isinstance(row, Communication) or any(split.weight for split in row.splits):
        return row.entry
    return row.op, row.text


def _text(rows: Sequence[Operation | Communication], layer: Layer) -> str:
    first = rows[0]
    if isinstance(first, Communication):
        over = f" over {','.join(first.axes)}" if first.axes else ""
        text = f"-> {first.kind} of {format_bytes(first.bytes)}{over}: {first.why}"
        return _strip_layer(text, layer)
    if len(rows) > 1:
        return f"{len(rows)} {first.op}: {first.text}"
    of = ""
    if first.weights and not any(split.weight for split in first.splits):
        of = f" of {first.weights[0]}"  # else its splits name the weight
    return _strip_layer(f"{first.op} {first.name}{of}: {first.text}", layer)


def _others(operations: Sequence[Operation]) -> str:
    """Return the splits of the other ops, the most frequent first."""
    count, ways = len(operations), Counter(op.text for op in operations).most_common()
    if len(ways) == 1:
        return f"{count} other op{'s' if count > 1 else ''}: {ways[0][0]}"
    listed = ", ".join(f"{count} {way}" for way, count in ways[:4])
    if len(ways) > 4:
        listed += f", {sum(count for _, count in ways[4:])} in other ways"
    return f"{count} other ops: {listed}"


def _strip_layer(text: str, layer: Layer) -> str:
    """Return a text without the prefix that the layer gives the names of its nodes."""
    first = layer.members[0].name
    for prefix in (f"/{first}/", f"{first.replace('/', '.')}.", f"{first}/"):
        text = text.replace(prefix, "")
    return text


def _costly(plan: Explanation) -> Iterator[str]:
    yield "costliest, over all layers"
    for row in plan.costly[:_COSTLY]:
        times = f"{row.count} x " if row.count > 1 else ""
        what = f"{row.op} {row.name}" if row.kind == "op" else f"{row.op} of {row.name}"
        where = f" in {row.layer}" if row.layer else ""
        share = f"{row.share:.1%}"
        yield f"  {_time(row.time_s)}  {share:>5}  {times}{what.strip()}{where}"


def _memory(plan: Explanation) -> Iterator[str]:
    memory = plan.memory
    if memory.at is not None and memory.alive:
        entry = plan.timeline[memory.at]
        doing = f"{entry.op} {entry.name}" if entry.kind == "op" else f"{entry.op} of {entry.name}"
        size = format_bytes(memory.transient_bytes)
        where = f" in {entry.layer}" if entry.layer else ""
        yield f"live at the peak, {size} while {doing.strip()} runs{where}"
        yield from _tensors(memory.alive)
    if memory.kept:
        yield f"always in memory, {format_bytes(memory.static_bytes)}"
        yield from _tensors(memory.kept)
    if memory.beside_bytes:
        size = format_bytes(memory.beside_bytes)
        yield f"{BESIDE}, {size}: the floor of a process, packed weights, gaps between tensors"


def _tensors(tensors: Sequence[Tensor]) -> Iterator[str]:
    for tensor in tensors[:_TENSORS]:
        layout = f" [{', '.join(tensor.layout)}]" if tensor.layout else ""
        kind = "" if tensor.kind in ("activation", "inside") else f", {tensor.kind}"
        where = f" of {tensor.layer}" if tensor.layer else ""
        yield f"  {format_bytes(tensor.bytes):>9}  {tensor.name}{layout}{kind}{where}"
    rest = tensors[_TENSORS:]
    if rest:
        size = format_bytes(sum(tensor.bytes for tensor in rest))
        yield f"  {size:>9}  in {len(rest)} more"


def _next(plan: Explanation) -> Iterator[str]:
    yield from _neighbour(plan, plan.faster, "faster")
    yield from _neighbour(plan, plan.leaner, "leaner")


def _neighbour(plan: Explanation, other: Neighbour | None, which: str) -> Iterator[str]:
    if other is None:
        yield f"no point of the frontier is {which}"
        return
    time_s, size = other.time_s - plan.time_s, other.process_bytes - plan.process_bytes
    above = f" ({ABOVE_CAPACITY})" if other.is_above_capacity else ""
    yield (
        f"the next {which} point, {other.index}{above}: {format_seconds(abs(time_s))} "
        f"{'more' if time_s > 0 else 'less'} ({_percent(time_s, plan.time_s)}), "
        f"{format_bytes(abs(size))} {'more' if size > 0 else 'less'} "
        f"({_percent(size, plan.process_bytes)}){_other_mesh(plan, other)}"
    )
    same: dict[tuple[str, str, str], list[Change]] = {}
    for change in other.changes:
        same.setdefault((change.op, change.before, change.after), []).append(change)
    groups = list(same.values())
    for group in groups[:_CHANGES]:
        yield f"  {_change(group)}"
    left = (change.count for group in groups[_CHANGES:] for change in group)
    count = other.others + sum(left)
    if count:
        yield f"  {'and ' if groups else ''}{count} other op{'s' if count > 1 else ''}"


def _other_mesh(plan: Explanation, other: Neighbour) -> str:
    texts = []
    staged = plan.staged
    count = 1 if staged is None else len(staged.stages)
    own, theirs = len(plan.replicas), other.replicas
    if (other.stages, theirs, other.mesh) != (count, own, plan.mesh):
        name = "" if other.stages > 1 or theirs else "mesh "
        texts.append(f"on {name}{split_words(other.stages, other.mesh, theirs)}")
    if other.schedule not in ("-", None if staged is None else staged.schedule):
        texts.append(f"schedule {other.schedule}")
    if other.recompute != plan.recompute:
        texts.append(f"recomputing {other.recompute}")
    if other.micro_batches != plan.micro_batches:
        texts.append(f"micro-batches {other.micro_batches}")
    return f", {', '.join(texts)}" if texts else ""


def _change(group: Sequence[Change]) -> str:
    """Return the line on an equal change of several ops, which names the first of them."""
    first, count = group[0], sum(change.count for change in group)
    of = f" of {first.weights[0]}" if first.weights else ""
    what = f"{first.op} {first.name}{of} in {first.layer}"
    more = f" and {count - first.count} more" if count > first.count else ""
    times = f"{count} x " if count > 1 else ""
    return f"{times}{what}{more}: {first.before} -> {first.after}"


def _time(time_s: float) -> str:
    return f"{format_seconds(time_s):>8}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"


def _percent(change: float, whole: float) -> str:
    percent = 100 * abs(change) / whole if whole else 0.0
    return f"{percent:.0f}%" if percent >= 10 else f"{percent:.2g}%"

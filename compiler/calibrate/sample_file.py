"""File format of measurements: a JSON line for the machine and each operator, collective and plan.

Equal measurements have equal bytes, and a new plan adds one line, so the file is fit for version
control.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tensoropt.compiler.calibrate.floor import Floor
from tensoropt.compiler.calibrate.planned import PlannedOp, PlannedSend, PlannedStep
from tensoropt.compiler.calibrate.samples import (
    Basics,
    CollectiveSample,
    Measurements,
    OpSample,
    Peak,
    PlanSample,
)
from tensoropt.compiler.cost.compute import Work
from tensoropt.compiler.cost.expected_error import MeasuredModel
from tensoropt.compiler.cost.machine import Machine
from tensoropt.compiler.cost.overlap import Overlap
from tensoropt.compiler.cost.process import Process
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.files import replacing

__all__ = ["SCHEMA", "read_samples", "samples_path", "write_samples"]

SCHEMA = 4

_Row = dict[str, Any]


def samples_path(description: Path) -> Path:
    """Return the path of the measurements of a description, in the same folder."""
    return description.with_suffix(".samples.jsonl")


def write_samples(path: Path, measured: Measurements) -> None:
    """Write all measurements, whole or not at all."""
    with replacing(path) as aside:
        lines = (json.dumps(row, allow_nan=False) for row in _rows(measured))
        aside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_samples(path: Path) -> Measurements:
    """Return the measurements in a file.

    Raises :class:`UserError`, with the number of the line, for any other content.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: expected a file of measurements, got: {error}") from None
    found: Measurements | None = None
    for number, line in enumerate(lines, 1):
        try:
            found = _read(found, json.loads(line))
        except (ValueError, KeyError, TypeError):
            wanted = "expected measurements as this tensoropt-profile writes them, or --anew"
            raise UserError(f"{path}:{number}: {wanted}") from None
    if found is None:
        raise UserError(f"{path}: expected measurements, got: an empty file")
    return found


def _rows(measured: Measurements) -> Iterator[_Row]:
    basics = measured.basics
    yield {"schema": SCHEMA, "machine": asdict(measured.machine), "basics": asdict(basics)}
    for sample in measured.common:
        yield {"operator": _op_row(sample)}
    for send in measured.collectives:
        yield {"collective": [send.kind, send.ranks, send.bytes, send.time_s]}
    for plan in measured.plans:
        yield {"plan": _plan_row(plan)}


def _op_row(sample: OpSample) -> list[Any]:
    return [*_work_row(sample.work, sample.context), sample.count, sample.time_s]


def _work_row(work: Work, context: tuple[str, ...]) -> list[Any]:
    own = [work.operator, work.dtype, work.flops, work.bytes, work.pass_bytes]
    return [*own, list(context)]


def _plan_row(plan: PlanSample) -> _Row:
    step = plan.step
    return {
        "model": asdict(plan.model),
        "name": plan.name,
        "measured_s": plan.measured_s,
        "predicted_bytes": plan.predicted_bytes,
        "measured_bytes": plan.measured_bytes,
        "predicted_process_bytes": plan.predicted_process_bytes,
        "process_bytes": plan.process_bytes,
        "ranks": step.ranks,
        "graphs": step.graphs,
        "copies": step.copies,
        "copied_bytes": step.copied_bytes,
        "bodies_s": step.bodies_s,
        "planned": [[*_work_row(op.work, op.context), count] for op, count in step.ops],
        "sent": [[send.kind, send.ranks, send.bytes, count] for send, count in step.sends],
        "ran": [_op_row(sample) for sample in plan.ops],
    }


def _measurements(row: _Row) -> Measurements:
    if row["schema"] != SCHEMA:
        raise ValueError
    basics: _Row = row["basics"]
    peaks = {dtype: Peak(**peak) for dtype, peak in basics["peaks"].items()}
    process = None if basics["process"] is None else Process(**basics["process"])
    overlap = None if basics["overlap"] is None else Overlap(**basics["overlap"])
    floor = Floor(**basics["floor"])
    own = Basics(
        **{**basics, "floor": floor, "peaks": peaks, "process": process, "overlap": overlap}
    )
    return Measurements(Machine(**row["machine"]), own)


def _read(found: Measurements | None, row: _Row) -> Measurements:
    """Add a row to the measurements; the first row is the machine's and creates them."""
    if found is None:
        return _measurements(row)
    [(kind, value)] = row.items()
    if kind == "operator":
        found.common.append(_op(value))
    elif kind == "collective":
        found.collectives.append(CollectiveSample(*value))
    elif kind == "plan":
        found.plans.append(_plan(value))
    else:
        raise ValueError
    return found


def _op(row: list[Any]) -> OpSample:
    *work, count, time_s = row
    planned = _planned(work)
    return OpSample(planned.work, planned.context, float(time_s), int(count))


def _planned(row: list[Any]) -> PlannedOp:
    operator, dtype, flops, moved, in_pass, context = row
    added = None if in_pass is None else float(in_pass)
    return PlannedOp(Work(operator, dtype, float(flops), float(moved), added), tuple(context))


def _plan(row: _Row) -> PlanSample:
    step = PlannedStep(
        row["ranks"],
        row["graphs"],
        tuple((_planned(op), count) for *op, count in row["planned"]),
        tuple((PlannedSend(*send), count) for *send, count in row["sent"]),
        row["copies"],
        row["copied_bytes"],
        row["bodies_s"],
    )
    return PlanSample(
        MeasuredModel(**row["model"]),
        row["name"],
        step,
        row["measured_s"],
        [_op(op) for op in row["ran"]],
        row["predicted_bytes"],
        row["measured_bytes"],
        row["predicted_process_bytes"],
        row["process_bytes"],
    )

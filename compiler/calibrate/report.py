"""Report of a profile: fitted figures and their errors, as tables or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from tensoropt.compiler.calibrate.plans import MeasuredPlan
from tensoropt.compiler.calibrate.run import Calibration
from tensoropt.compiler.report.expected import expected_line
from tensoropt.compiler.report.table import render
from tensoropt.compiler.support.units import format_seconds

__all__ = ["profile_json", "profile_text"]

_OPERATORS = ["operator", "type", "samples", "parts", "launch", "GFLOP/s", "GB/s", "median", "90%"]
_COLLECTIVES = ["collective", "ranks", "sizes", "least", "GB/s at most", "median", "90%"]
_PLANS = ["model", "plan", "ranks", "predicted", "measured", "ratio"]


def profile_text(profile: Calibration, *, colour: bool = False) -> str:
    """Return tables of the operators, the collectives and the plans, with relative errors."""
    description = profile.description
    parts = [
        render(
            f"{description.name}: {_device(profile)}",
            _OPERATORS,
            [*_operator_rows(profile)],
            colour,
        ),
        render("collectives", _COLLECTIVES, [*_collective_rows(profile)], colour),
        render("steps of plans", _PLANS, [*map(_plan_row, profile.plans)], colour),
    ]
    sizes = [description.operators, description.collectives, profile.plans]
    texts = [text for text, rows in zip(parts, sizes, strict=True) if rows]
    return "\n".join([*texts, *([f"{_summary(profile)}\n"] if profile.plans else [])])


def _device(profile: Calibration) -> str:
    basics = profile.description.basics
    rates = ", ".join(
        f"{p.flop_per_s / 1e9:.4g} GFLOP/s {dtype}" for dtype, p in basics.peaks.items()
    )
    memory = f"{basics.bandwidth_bytes_per_s / 1e9:.3g} GB/s memory"
    floors = f"{format_seconds(basics.floor.node_s)} a node"
    return f"{rates}, {memory}, {floors}, {format_seconds(basics.floor.graph_s)} a graph"


def _operator_rows(profile: Calibration) -> Iterator[list[str]]:
    for operator in profile.description.operators:
        rates = (operator.operator.s_per_flop, operator.operator.s_per_byte)
        errors = (operator.median, operator.worst) if operator.samples else (None, None)
        yield [
            operator.name,
            operator.dtype,
            str(operator.samples),
            str(operator.parts),
            format_seconds(operator.operator.launch_s) if operator.samples else "-",
            *(f"{1e-9 / rate:.3g}" if rate else "-" for rate in rates),
            *map(_percent, errors),
        ]


def _collective_rows(profile: Calibration) -> Iterator[list[str]]:
    for collective in profile.description.collectives:
        lines = collective.curve.lines
        slopes = [slope for _, slope in lines if slope]
        yield [
            collective.kind,
            str(collective.ranks),
            str(collective.samples),
            format_seconds(lines[0][0]),
            f"{1e-9 / max(slopes):.3g}" if slopes else "-",
            _percent(collective.median),
            _percent(collective.worst),
        ]


def _plan_row(plan: MeasuredPlan) -> list[str]:
    times = format_seconds(plan.predicted_s), format_seconds(plan.measured_s)
    return [plan.model, plan.name, str(plan.ranks), *times, f"{plan.ratio:.2f}"]


def _summary(profile: Calibration) -> str:
    """Return the median error on the plans of the fit, and the expected error on other plans."""
    middle = float(np.median([plan.error for plan in profile.plans]))
    count, expected = len(profile.plans), profile.description.expected
    lines = [f"median error of steps, which the fit has seen: {middle:.0%} over {count} plans"]
    for known in (True, False) if expected.other_models is not None else (True,):
        lines.append(expected_line(expected.of_plan(known=known), profile.description.name))
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def profile_json(profile: Calibration) -> str:
    """Return a profile as one JSON object; times are in seconds, rates per second."""
    description, basics = profile.description, profile.description.basics
    whole: dict[str, Any] = {
        "name": description.name,
        "ranks": description.machine.ranks,
        "step_overhead_s": basics.floor.graph_s,
        "launch_overhead_s": basics.floor.node_s,
        "memory_bytes_per_s": basics.bandwidth_bytes_per_s,
        "peak_flop_per_s": {dtype: peak.flop_per_s for dtype, peak in basics.peaks.items()},
        "operators": [
            {
                "name": own.name,
                "dtype": own.dtype,
                "samples": own.samples,
                "parts": own.parts,
                "launch_s": own.operator.launch_s,
                "s_per_flop": own.operator.s_per_flop,
                "s_per_byte": own.operator.s_per_byte,
                "median_error": own.median,
                "p90_error": own.worst,
            }
            for own in description.operators
        ],
        "collectives": [
            {
                "kind": own.kind,
                "ranks": own.ranks,
                "samples": own.samples,
                **asdict(own.curve),
                "median_error": own.median,
                "p90_error": own.worst,
            }
            for own in description.collectives
        ],
        "waiting": {ranks: asdict(own) for ranks, own in description.waiting.items()},
        "expected_error": asdict(description.expected),
        "plans": [{**vars(plan), "ratio": plan.ratio} for plan in profile.plans],
        "left_out": list(profile.left_out),
    }
    return json.dumps(whole, indent=2, allow_nan=False) + "\n"

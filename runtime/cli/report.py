"""The results of a run as text or JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal, Protocol

from tensoropt.runtime.check.results import CheckResult, FirstDifference, LayerTime
from tensoropt.runtime.plan.dims import dim_flags
from tensoropt.runtime.support.errors import printable
from tensoropt.runtime.support.expected import ExpectedErrorEntry, margin
from tensoropt.runtime.support.tables import columns, milliseconds, size_text

__all__ = [
    "Measured",
    "device_lines",
    "has_passed",
    "predicted_time",
    "to_json",
    "to_text",
]

UNDECIDED = "UNDECIDED"
_HINT = "no output shows anything, expected --inputs with which one does"


def has_passed(results: Sequence[CheckResult]) -> bool:
    """Return True if every plan ran and every comparison, if any, passed and was decisive."""
    return all(_word(result) in ("", "PASSED") for result in results)


def _word(result: CheckResult) -> str:
    """Return the verdict on a plan; empty if it ran without a comparison."""
    if result.error is not None or result.passed is False:
        return "FAILED"
    if result.passed is None:
        return ""
    return "PASSED" if result.shows else UNDECIDED


def _verdict_on_all(results: Sequence[CheckResult]) -> str:
    words = {_word(result) for result in results}
    if "FAILED" in words:
        return "FAILED"
    return f"{UNDECIDED}: {_HINT}" if UNDECIDED in words else "PASSED"


def to_text(results: Sequence[CheckResult]) -> str:
    """Return a table and, if plans were compared, the verdict on a last line.

    The verdict is ``PASSED``, ``FAILED``, or ``UNDECIDED`` if no output of a plan is informative.
    """
    if len(results) == 1:
        lines = [*columns(_output_rows(results[0])), *_measured_lines(results[0])]
    else:
        lines = columns([_plan_row(result) for result in results])
    if any(result.passed is not None for result in results):
        lines.append(_verdict_on_all(results))
    return "".join(f"{line}\n" for line in lines)


def _output_rows(result: CheckResult) -> list[list[str]]:
    rows = [["output", "type", "shape"]]
    rewritten = any(output.by_rewrites is not None for output in result.outputs)
    if result.passed is not None:
        rows[0] += ["largest difference", *(["by rewrites"] if rewritten else []), "relative", ""]
    for output in result.outputs:
        rows.append([printable(output.name), output.dtype, _shape(output.shape)])
        if result.passed is not None:
            verdict = "ok" if output.passed else "FAILED"
            note = f"{verdict}: {output.note}" if output.note else verdict
            part = [_number(output.by_rewrites)] if rewritten else []
            rows[-1] += [_number(output.absolute), *part, _number(output.relative), note]
    return rows


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _measured_lines(result: CheckResult) -> list[str]:
    """Return lines with measured and predicted times and memory, if steps were timed."""
    lines = [] if result.drawn is None else [f"drawn inputs: {result.drawn}"]
    if result.assumed_dims:
        sizes = ", ".join(f"{name}={size}" for name, size in result.assumed_dims.items())
        flags = dim_flags(result.assumed_dims, "N")
        lines.append(printable(f"sizes of the plan: {sizes} ({flags} sets others)"))
    if result.step_times_s:
        lines.append(f"step time: {_times(result.step_times_s)}{predicted_time(result)}")
    if result.interval_s is not None:
        lines.append(_interval_line(result))
    if result.one_device_times_s:
        lines.append(f"one device: {_times(result.one_device_times_s)}")
    if result.step_times_s and result.peak_bytes is not None:
        predicted = f"{size_text(result.predicted_bytes)}{_margin(result, 'memory')}"
        lines.append(f"peak memory: {size_text(result.peak_bytes)}, predicted {predicted}")
    if result.first is not None:
        lines += _first_lines(result.first)
    lines += _layer_lines(result.layers)
    return lines + device_lines(result)


def _interval_line(result: CheckResult) -> str:
    """Return the line on a stream of inputs, which pass through the stages."""
    assert result.interval_s is not None
    interval, rate = milliseconds(result.interval_s), f"{1 / result.interval_s:.4g} runs/s"
    predicted = _predicted(result, result.predicted_interval_s)
    return f"stream: a result every {interval}{predicted}, {rate}"


def _first_lines(first: FirstDifference) -> list[str]:
    """Return lines that locate the first difference, with the expected and actual values."""
    if first.node is None:
        rest = f"; the others cannot be looked at: {first.note}" if first.note else ""
        seen = f"{first.compared} of {first.values} values inside were compared: none differs"
        return [printable(f"{seen}{rest}")]
    ranks = f"rank{'s' if len(first.ranks) > 1 else ''} {', '.join(map(str, first.ranks))}"
    before = f"{first.compared - 1} values before it agree, of {first.values} inside"
    lines = [
        f"first difference: '{first.tensor}' of {first.op} node '{first.node}', on {ranks}",
        f"  layout {', '.join(first.layout)} of {_shape(first.shape)}; {before}",
    ]
    if first.index is not None:
        at = f"[{', '.join(map(str, first.index))}]"
        lines.append(f"  furthest off at {at}: expected {first.expected}, got: {first.got}")
    return [printable(line) for line in (*lines, *([f"  {first.note}"] if first.note else []))]


def _layer_lines(layers: Sequence[LayerTime]) -> list[str]:
    """Return a table of each layer's measured and predicted time."""
    if not layers:
        return []
    rows = [
        [
            printable(f"  {row.layer}"),
            milliseconds(row.measured_s),
            "-" if row.predicted_s is None else milliseconds(row.predicted_s),
        ]
        for row in layers
    ]
    return columns([["  layer", "measured", "predicted"], *rows])


def _times(times: Sequence[float]) -> str:
    middle, least, most = (milliseconds(of(times)) for of in (statistics.median, min, max))
    return f"median {middle}, fastest {least}, slowest {most} of {len(times)}"


class Measured(Protocol):
    """The common fields of the results of all kinds of jobs; see `CheckResult`."""

    @property
    def predicted_time_s(self) -> float | None: ...
    @property
    def expected_error(self) -> ExpectedErrorEntry | None: ...
    @property
    def used_bytes(self) -> int | None: ...
    @property
    def nodes_on_cpu(self) -> int | None: ...
    @property
    def cuda_graphs(self) -> str | None: ...


def predicted_time(result: Measured) -> str:
    """Return the predicted time as a suffix of a measured time; empty without a prediction."""
    return _predicted(result, result.predicted_time_s)


def _predicted(result: Measured, time_s: float | None) -> str:
    return "" if time_s is None else f", predicted {milliseconds(time_s)}{_margin(result, 'time')}"


def _margin(result: Measured, figure: Literal["time", "memory"]) -> str:
    return margin(None if result.expected_error is None else result.expected_error[figure])


def device_lines(result: Measured) -> list[str]:
    """Return lines with the device measurements, if the job ran on a GPU."""
    found = (
        ("device memory in use", result.used_bytes and size_text(result.used_bytes)),
        ("nodes on the CPU", result.nodes_on_cpu),
        ("CUDA graphs", result.cuda_graphs),
    )
    return [f"{what}: {value}" for what, value in found if value is not None]


def _plan_row(result: CheckResult) -> list[str]:
    verdict = _word(result) or "ok"
    times = result.step_times_s
    step = f"step {milliseconds(statistics.median(times))}{predicted_time(result)}" if times else ""
    return [result.plan, f"mesh {_shape(result.mesh)}", verdict, step, _remark(result)]


def _remark(result: CheckResult) -> str:
    """Return a short remark on a plan: its error, or its worst output."""
    if result.error is not None:
        return result.error
    compared = [output for output in result.outputs if output.passed is not None]
    if not compared:
        return ""
    worst = max(compared, key=lambda output: (not output.passed, output.absolute or 0.0))
    note = f" ({worst.note})" if worst.note else ""
    return f"largest difference {_number(worst.absolute)} in '{printable(worst.name)}'{note}"


def to_json(results: Sequence[CheckResult]) -> str:
    """Return one JSON object: the facts of a single plan, or ``plans`` and ``passed``."""
    compared = any(result.passed is not None for result in results)
    passed = has_passed(results) if compared else None
    whole: dict[str, Any] = {"plans": [_facts_of(result) for result in results], "passed": passed}
    if len(results) == 1:
        whole = _facts_of(results[0])
    return json.dumps(whole, indent=2, allow_nan=False) + "\n"


def _facts_of(result: CheckResult) -> dict[str, Any]:
    facts = {**asdict(result), "shows": result.shows}
    for name in ("step", "one_device"):
        times = facts.pop(f"{name}_times_s")
        facts[f"{name}_time_s"] = _statistics(times) if times else None
    return facts


def _statistics(times: Sequence[float]) -> dict[str, float | int]:
    return {
        "median": statistics.median(times),
        "min": min(times),
        "max": max(times),
        "runs": len(times),
    }

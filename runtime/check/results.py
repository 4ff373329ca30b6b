"""Results of runs and checks, which ranks return as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tensoropt.runtime.support.expected import ExpectedErrorEntry

__all__ = ["CheckResult", "FirstDifference", "LayerTime", "OutputResult", "results_from"]


@dataclass(frozen=True)
class OutputResult:
    """One output: its global shape and, after a comparison, the largest differences.

    ``relative`` is over elements larger than the absolute tolerance. ``note`` describes other
    differences: a NaN on one side only, another shape or type. ``passed`` is None without a
    comparison. ``shows`` is false for a constant output, which would agree in a wrong run, too.
    ``by_rewrites`` is the largest difference between runs on one device with and without the
    rewrites of quantised models that the ranks may use, None if there are none.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    absolute: float | None = None
    relative: float | None = None
    passed: bool | None = None
    note: str = ""
    shows: bool = True
    by_rewrites: float | None = None


@dataclass(frozen=True)
class FirstDifference:
    """The first value in program order that differs from the one-device run.

    ``node``, with operator ``op``, computes ``tensor`` of the model in ``layout``; ``ranks`` have a
    wrong part of it. The difference is largest at ``index``: ``expected`` and ``got``, as text.
    ``compared`` of the ``values`` in the plan were compared, this value last. ``node`` is None if
    all of them agree.
    """

    node: str | None = None
    op: str = ""
    tensor: str = ""
    layout: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    index: tuple[int, ...] | None = None
    expected: str | None = None
    got: str | None = None
    absolute: float | None = None
    note: str = ""
    compared: int = 0
    values: int = 0

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> FirstDifference:
        """Return the difference with the fields ``values``, read from JSON."""
        tuples = {name: tuple(values[name]) for name in ("layout", "ranks", "shape")}
        index = None if values["index"] is None else tuple(values["index"])
        return cls(**{**values, **tuples, "index": index})


@dataclass(frozen=True)
class LayerTime:
    """Measured time of the nodes of one layer in a step, and the predicted time, if known."""

    layer: str
    measured_s: float
    predicted_s: float | None


@dataclass(frozen=True)
class CheckResult:
    """One plan's run. ``step_times_s``: the slowest rank's time of each timed step.

    ``one_device_times_s``: the same for the one-device run, if both were requested. ``error``: the
    reason why the plan could not run. ``passed`` is None without a comparison. ``drawn`` describes
    unusual distributions of the drawn inputs, and ``assumed_dims`` has the sizes of dimensions for
    which the user gave none: those of the plan. If requested, ``first`` is the first wrong value,
    and ``layers`` are the times of the layers.

    ``peak_bytes`` is the peak memory of the rank with most: resident memory of its process, or on a
    device the inputs and ONNX Runtime's arenas since ranks started; None if unknown.
    ``predicted_time_s`` and ``predicted_bytes`` are the plan's predictions, for its own device, and
    ``expected_error`` their expected errors. A plan with stages has the ``interval_s`` between
    results of a stream of inputs, as measured and as predicted. Only on a device: ``used_bytes`` is
    its used memory, of all processes, after the last step, and ``nodes_on_cpu`` the number of nodes
    that ONNX Runtime left to the CPU, both on the rank with most. ``cuda_graphs``, if requested, is
    "captured" or the reason why not.
    """

    plan: str
    ranks: int
    mesh: tuple[int, ...]
    outputs: tuple[OutputResult, ...] = ()
    step_times_s: tuple[float, ...] = ()
    one_device_times_s: tuple[float, ...] = ()
    error: str | None = None
    passed: bool | None = None
    provider: str = "cpu"
    predicted_time_s: float | None = None
    predicted_bytes: int | None = None
    expected_error: ExpectedErrorEntry | None = None
    peak_bytes: int | None = None
    used_bytes: int | None = None
    nodes_on_cpu: int | None = None
    cuda_graphs: str | None = None
    drawn: str | None = None
    first: FirstDifference | None = None
    layers: tuple[LayerTime, ...] = ()
    interval_s: float | None = None
    predicted_interval_s: float | None = None
    assumed_dims: dict[str, int] = field(default_factory=dict)

    @property
    def shows(self) -> bool:
        """True if some output is not constant, or without outputs, as on ranks other than 0."""
        return not self.outputs or any(output.shows for output in self.outputs)


def results_from(entries: list[dict[str, Any]]) -> list[CheckResult]:
    """Return the results with the fields ``entries``, read from JSON."""
    return [_result(entry) for entry in entries]


def _result(entry: dict[str, Any]) -> CheckResult:
    outputs = tuple(
        OutputResult(**{**output, "shape": tuple(output["shape"])}) for output in entry["outputs"]
    )
    tuples = {name: tuple(entry[name]) for name in ("mesh", "step_times_s", "one_device_times_s")}
    first = None if entry["first"] is None else FirstDifference.from_values(entry["first"])
    layers = tuple(LayerTime(**layer) for layer in entry["layers"])
    return CheckResult(**{**entry, **tuples, "outputs": outputs, "first": first, "layers": layers})

"""What the starting process asks of the rank processes, and what they answer; both as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tensoropt.runtime.support.expected import ExpectedErrorEntry

__all__ = [
    "DRAWS",
    "INT_RANGE",
    "PROVIDERS",
    "CheckResult",
    "FirstDifference",
    "Job",
    "Launched",
    "LayerTime",
    "OutputResult",
    "results_from",
]

PROVIDERS = ("cpu", "cuda")
"""Where ranks can compute."""

INT_RANGE = (0, 16)
"""Where drawn integers lie unless asked for: they often index tables."""

DRAWS = {
    "normal": "standard normal",
    "uniform": "uniform in 0..1",
    "small": "normal of deviation 0.01",
    "large": "normal of deviation 10",
}
"""How floats can be drawn."""


@dataclass(frozen=True, kw_only=True)
class Launched:
    """What every kind of job has.

    ``threads`` per rank: None divides the machine's cores. ``provider`` says where ranks compute,
    one of `PROVIDERS`; on CUDA ``share_gpus`` allows more ranks on a machine than GPUs, and
    ``cuda_graphs`` asks for CUDA graphs. The job has failed after ``timeout_s``, or where no rank
    has come to another collective for ``stall_s`` (None: never). A launcher that started the ranks
    sets ``launcher_pid`` and ``started_at``, by the clock that does not jump.
    """

    kind: ClassVar[str]
    threads: int | None = None
    provider: str = "cpu"
    share_gpus: bool = False
    cuda_graphs: bool = False
    timeout_s: float | None = None
    stall_s: float | None = None
    started_at: float | None = None
    launcher_pid: int | None = None

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"kind": self.kind, **asdict(self)}), encoding="utf-8")


@dataclass(frozen=True)
class Job(Launched):
    """One launch: the plans to run, in order, and how.

    ``model`` asks for a comparison with the one-device run. Inputs come from the .npz file
    ``inputs`` or else from ``seed``: integers lie in ``int_range`` (low included, high excluded),
    floats are distributed as ``draw`` says, one of `DRAWS`, and ``dims`` sizes symbolic dimensions.
    ``runs`` steps are timed after one that is not.
    ``debug`` looks for the first value that differs, and times every node.
    ``rtol`` and ``atol``: None takes those of the output's type, see `compare`.
    ``custom_ops`` are libraries of operators, for all sessions: who runs the job names them, as a
    plan must not make a machine load code.
    """

    kind = "run"
    plans: tuple[str, ...]
    model: str | None = None
    inputs: str | None = None
    outputs: str | None = None
    seed: int = 0
    int_range: tuple[int, int] = INT_RANGE
    draw: str = "normal"
    dims: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    rtol: float | None = None
    atol: float | None = None
    debug: bool = False
    custom_ops: tuple[str, ...] = ()

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Job:
        """Return the job whose fields JSON held."""
        values["plans"] = tuple(values["plans"])
        values["custom_ops"] = tuple(values["custom_ops"])
        values["int_range"] = tuple(values["int_range"])
        return cls(**values)


@dataclass(frozen=True)
class OutputResult:
    """One output: its global shape and, after a comparison, the largest differences.

    ``relative`` is over elements larger than the absolute tolerance. ``note`` says what else is
    wrong: a NaN on one side only, another shape or type. ``passed`` is None without a comparison.
    One that cannot tell a wrong run from a right one, as the output is constant, ``shows`` nothing.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    absolute: float | None = None
    relative: float | None = None
    passed: bool | None = None
    note: str = ""
    shows: bool = True


@dataclass(frozen=True)
class FirstDifference:
    """Where a plan goes wrong: the first value in program order that one device has otherwise.

    ``node`` and ``op`` make ``tensor``, of the model, which lies in ``layout``; ``ranks`` are those
    with a wrong part of it. At ``index`` it is furthest off: ``expected`` and ``got``, as text.
    ``compared`` values were looked at, this one last, of ``values`` in the plan; ``node`` is
    ``None`` where all of these agree.
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
        """Return what JSON held."""
        tuples = {name: tuple(values[name]) for name in ("layout", "ranks", "shape")}
        index = None if values["index"] is None else tuple(values["index"])
        return cls(**{**values, **tuples, "index": index})


@dataclass(frozen=True)
class LayerTime:
    """How long the nodes of one layer took in a step, and what was predicted, if that is known."""

    layer: str
    measured_s: float
    predicted_s: float | None


@dataclass(frozen=True)
class CheckResult:
    """One plan's run. ``step_times_s``: the slowest rank's time of each timed step.

    ``one_device_times_s``: the same for the one-device run, where both were asked for. ``error``:
    why the plan could not be run. ``passed`` is None without a comparison. ``drawn`` says from
    what inputs were drawn where not as usual. ``first`` is where the plan goes wrong, and
    ``layers`` how long each of them took, where that was asked for.

    ``peak_bytes`` is the most memory that a rank took: all resident memory of its process,
    on a device what ONNX Runtime's arenas took, since ranks started, and the inputs; None where
    nothing says.
    ``predicted_time_s`` and ``predicted_bytes`` are the plan's own, for the device that it was made
    for, and ``expected_error`` how far off it expects them. Only on a device: ``used_bytes``, all
    that processes take of it after the last step, and ``nodes_on_cpu``, how many nodes ONNX Runtime
    left to the CPU, both of the rank with most; ``cuda_graphs``, where asked for, is "captured" or
    says why not.
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

    @property
    def shows(self) -> bool:
        """Whether some output can tell a wrong run from a right one; rank 0 alone has outputs."""
        return not self.outputs or any(output.shows for output in self.outputs)


def results_from(entries: list[dict[str, Any]]) -> list[CheckResult]:
    """Return the results whose fields JSON held."""
    return [_result(entry) for entry in entries]


def _result(entry: dict[str, Any]) -> CheckResult:
    outputs = tuple(
        OutputResult(**{**output, "shape": tuple(output["shape"])}) for output in entry["outputs"]
    )
    tuples = {name: tuple(entry[name]) for name in ("mesh", "step_times_s", "one_device_times_s")}
    first = None if entry["first"] is None else FirstDifference.from_values(entry["first"])
    layers = tuple(LayerTime(**layer) for layer in entry["layers"])
    return CheckResult(**{**entry, **tuples, "outputs": outputs, "first": first, "layers": layers})

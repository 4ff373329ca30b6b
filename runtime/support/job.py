"""Jobs that the launching process passes to the ranks, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

__all__ = [
    "DRAWS",
    "INT_RANGE",
    "PROVIDERS",
    "Job",
    "Launched",
]

PROVIDERS = ("cpu", "cuda")
"""The devices on which ranks can compute."""

INT_RANGE = (0, 16)
"""Default range of drawn integers, small as they often index tables."""

DRAWS = {
    "normal": "standard normal",
    "uniform": "uniform in 0..1",
    "small": "normal of deviation 0.01",
    "large": "normal of deviation 10",
}
"""Distributions of drawn floats."""


@dataclass(frozen=True, kw_only=True)
class Launched:
    """Fields common to all kinds of jobs.

    ``threads`` is per rank; None divides the cores of the machine. ``provider`` is one of
    `PROVIDERS`. On CUDA ``share_gpus`` allows more ranks than GPUs on a machine, and
    ``cuda_graphs`` requests CUDA graphs. The job fails after ``timeout_s``, or when no rank reaches
    another collective for ``stall_s`` (None: never). A launcher that starts the ranks sets
    ``launcher_pid`` and ``started_at``, on the monotonic clock.
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
    """One launch: the plans to run, in order, and their options.

    ``model`` requests a comparison with the one-device run. Inputs are read from the .npz file
    ``inputs``, or else drawn from ``seed``: integers from ``int_range`` (low included, high
    excluded), floats from ``draw``, one of `DRAWS`. ``dims`` sizes symbolic dimensions.
    ``runs`` steps are timed after one untimed step.
    ``debug`` finds the first value that differs, and times every node.
    ``rtol`` and ``atol``: None selects the tolerances of the output's type, see `compare`.
    ``custom_ops`` are libraries of operators, for all sessions. The user who runs the job names
    them, as a plan must not make a machine load code.
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
        """Return the job with the fields ``values``, read from JSON."""
        values["plans"] = tuple(values["plans"])
        values["custom_ops"] = tuple(values["custom_ops"])
        values["int_range"] = tuple(values["int_range"])
        return cls(**values)

"""Jobs that the launching process passes to the ranks, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tensoropt.runtime.support.kinds import (
    RANGE,
    SECONDS,
    SWITCH,
    integer,
    number,
    path,
)
from tensoropt.runtime.support.options import option
from tensoropt.runtime.support.places import FORMS, INPUT, Output
from tensoropt.runtime.support.rank_options import (
    InferenceArguments,
    InferenceOptions,
    RankOptions,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["DRAWS", "INT_RANGE", "CheckArguments", "Job", "Launched"]

INT_RANGE = (0, 16)
"""Default range of drawn integers, small as they often index tables."""

DRAWS = {
    "normal": "standard normal",
    "uniform": "uniform in 0..1",
    "small": "normal of deviation 0.01",
    "large": "normal of deviation 10",
}
"""Distributions of drawn floats."""

_TOLERANCE = "tolerance per element (default: by type and spread of the output)"


@dataclass(frozen=True, kw_only=True)
class Launched(RankOptions):
    """Fields common to all kinds of jobs.

    The job fails after ``timeout_s``. A launcher that starts the ranks sets ``launcher_pid`` and
    ``started_at``, on the monotonic clock.
    """

    kind: ClassVar[str]
    timeout_s: float | None = option(None, SECONDS, "end all ranks after S seconds", "S")
    started_at: float | None = None
    launcher_pid: int | None = None

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"kind": self.kind, **asdict(self)}), encoding="utf-8")


@dataclass(frozen=True)
class Job(Launched, InferenceOptions):
    """One launch: the plans to run, in order, and their options.

    ``model`` requests a comparison with the one-device run. Inputs are read from the .npz file
    ``inputs``, or else drawn from ``seed``: integers from ``int_range`` (low included, high
    excluded), floats from ``draw``, one of `DRAWS`. ``runs`` steps are timed after one untimed
    step. ``debug`` finds the first value that differs, and times every node. ``rtol`` and ``atol``:
    None selects the tolerances of the output's type, see `compare`.
    """

    kind = "run"
    plans: tuple[str, ...]
    model: str | None = None
    inputs: str | None = option(
        None, path(INPUT), "global inputs by name (default: drawn from the seed)", "NPZ"
    )
    outputs: str | None = option(
        None, path(Output(form=FORMS["npz"])), "write the global outputs to this file", "NPZ"
    )
    seed: int = option(0, integer(0), "seed of drawn inputs or dropout (default %(default)s)", "K")
    int_range: tuple[int, int] = option(
        INT_RANGE,
        RANGE,
        "range LO..HI-1 of drawn integers (default 0:16: valid token ids or class indices of "
        "any usual model, while 0:2 would leave most rows of a table unread)",
        "LO:HI",
    )
    draw: str = "normal"
    runs: int = option(0, integer(0), "time N steps after a first step", "N")
    rtol: float | None = option(None, number(0.0), f"relative {_TOLERANCE}")
    atol: float | None = option(None, number(0.0), f"absolute {_TOLERANCE}")
    debug: bool = option(
        False, SWITCH, "with --check, find the first internal difference, and time each layer"
    )

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Job:
        """Return the job with the fields ``values``, read from JSON."""
        return cls(**{**values, "plans": tuple(values["plans"])})


class CheckArguments(InferenceArguments, total=False):
    """Options of `Job` as keyword arguments; ``inputs`` may be arrays by name, too."""

    timeout_s: float | None
    inputs: str | PathLike[str] | Mapping[str, ArrayLike] | None
    outputs: str | PathLike[str] | None
    seed: int
    int_range: tuple[int, int]
    runs: int
    rtol: float | None
    atol: float | None
    debug: bool

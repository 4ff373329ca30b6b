"""Speed of models by number of devices, known before a job runs."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["TABLE", "Profile", "read_profiles"]

TABLE = Path(__file__).parent / "speedups.csv"
"""The output of `speedups.py --write`."""


@dataclass(frozen=True)
class Profile:
    """``speed`` by number of devices, in devices: the smallest number has its own count.

    ``replicas`` is the fewest devices on which the data-parallel step fits, ``None`` if it never
    does; `minimum` is the fewest on which any plan does.
    """

    model: str
    speed: Mapping[int, float]
    replicas: int | None

    @cached_property
    def minimum(self) -> int:
        """The fewest devices on which a plan fits."""
        return min(self.speed)

    @cached_property
    def steps(self) -> Mapping[int, tuple[int, float]]:
        """The step up from each count with the largest gain per additional device, and that gain.

        Ties take the smallest step; a count without a gain has none. Starting at the smallest
        count, these are the corners of the concave hull of the speeds.
        """
        steps = {}
        for count, speed in self.speed.items():
            best = (count, 0.0)
            for further in sorted(n for n in self.speed if n > count):
                gain = (self.speed[further] - speed) / (further - count)
                if gain > best[1] * (1 + 1e-9):
                    best = (further, gain)
            if best[1] > 0:
                steps[count] = best
        return steps


def read_profiles(device: str, table: Path = TABLE) -> list[Profile]:
    """Return the profiles of the models of a device; raise ValueError if there are none."""
    with table.open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["device"] == device]
    if not lines:
        raise ValueError(f"{table}: expected rows of {device}, got: none")
    models = dict.fromkeys(line["model"] for line in lines)
    return [_profile(name, [line for line in lines if line["model"] == name]) for name in models]


def _profile(name: str, lines: list[dict[str, str]]) -> Profile:
    times = {int(line["devices"]): float(line["step_s"]) for line in lines}
    fewest = min(times)
    speed = {count: fewest * times[fewest] / time for count, time in times.items()}
    fits = [int(line["devices"]) for line in lines if line["replicas_fit"] == "yes"]
    return Profile(name, speed, min(fits, default=None))

"""Points made by hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spot:
    """A point with the fields of every point."""

    index: int
    mesh: tuple[int, ...]
    time_s: float
    compute_s: float
    communication_s: float
    memory_bytes: int
    static_bytes: int
    transient_bytes: int
    recompute: str | None = None
    beside_bytes: int = 0
    hidden_s: float = 0.0
    is_above_capacity: bool = False

    @property
    def process_bytes(self) -> int:
        return self.memory_bytes + self.beside_bytes


def spot(index: int, time_s: float, memory_bytes: int, mesh: tuple[int, ...] = (2, 2)) -> Spot:
    return Spot(index, mesh, time_s, time_s * 0.75, time_s * 0.25, memory_bytes, memory_bytes, 0)

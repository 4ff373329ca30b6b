"""Placement of jobs on blocks of machines, with moves if free devices are fragmented.

A job with fewer devices than a machine takes an aligned block of one machine, a larger job takes
whole machines. All counts are powers of two, or whole machines. Thus every set of jobs that fits by
number fits after moves of smaller jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Machines"]


class Machines:
    """``machines`` of ``size`` devices each, a power of two."""

    def __init__(self, machines: int, size: int) -> None:
        self.size, self.devices = size, machines * size
        self._free = [(1 << size) - 1] * machines
        self._held: dict[int, list[tuple[int, int]]] = {}
        self._here: list[set[int]] = [set() for _ in range(machines)]

    @property
    def free(self) -> int:
        """The number of free devices."""
        return sum(mask.bit_count() for mask in self._free)

    def blocks(self, job: int) -> Sequence[tuple[int, int]]:
        """Return the machines of a job, each with a mask of its devices there."""
        return self._held.get(job, ())

    def release(self, job: int) -> None:
        """Release all devices of a job."""
        for machine, mask in self._held.pop(job):
            self._free[machine] |= mask
            self._here[machine].discard(job)

    def place(self, wanted: Sequence[tuple[int, int]]) -> set[int]:
        """Place each (job, devices) of ``wanted``; return the other jobs that had to move.

        Linear in machines for every placed or moved job. Raises ValueError if there are too few
        free devices.
        """
        moved: set[int] = set()
        waiting = sorted(wanted, key=lambda pair: -pair[1])
        while waiting:
            job, count = waiting.pop(0)
            if count > self.free:
                raise ValueError(f"placement: {self.free} devices are free, got: {count} for {job}")
            evicted = self._settle(job, count)
            moved.update(other for other, _ in evicted)
            waiting = sorted([*waiting, *evicted], key=lambda pair: -pair[1])
        return moved - {job for job, _ in wanted}

    def _settle(self, job: int, count: int) -> list[tuple[int, int]]:
        """Place one job; return the jobs evicted from its devices."""
        places = self._whole(count) if count >= self.size else [self._block(count)]
        out = {other for machine, mask in places for other in self._holders(machine, mask)}
        evicted = [(other, self._count(other)) for other in out]
        for other in out:
            self.release(other)
        for machine, mask in places:
            self._free[machine] &= ~mask
            self._here[machine].add(job)
        self._held[job] = places
        return evicted

    def _whole(self, count: int) -> list[tuple[int, int]]:
        """Return the machines with the fewest devices to vacate, without jobs on whole machines."""
        full = (1 << self.size) - 1
        movable = [n for n in range(len(self._free)) if not self._large(n)]
        movable.sort(key=lambda n: -self._free[n].bit_count())
        return [(n, full) for n in movable[: count // self.size]]

    def _large(self, machine: int) -> bool:
        return any(self._count(job) >= self.size for job in self._here[machine])

    def _block(self, count: int) -> tuple[int, int]:
        """Return a free block on the fullest machine, or else one with fewest devices to vacate.

        That block is partly free, so the jobs on it are smaller.
        """
        free = [(mask.bit_count(), n, mask) for n, mask in enumerate(self._free) if mask]
        free.sort()
        masks = [((1 << count) - 1) << offset for offset in range(0, self.size, count)]
        for _, machine, room in free:
            for mask in masks:
                if room & mask == mask:
                    return machine, mask
        return min(
            (count - (room & mask).bit_count(), machine, mask)
            for _, machine, room in free
            for mask in masks
        )[1:]

    def _holders(self, machine: int, mask: int) -> list[int]:
        held = self._held
        return [
            job
            for job in self._here[machine]
            if any(n == machine and own & mask for n, own in held[job])
        ]

    def _count(self, job: int) -> int:
        return sum(mask.bit_count() for _, mask in self._held[job])

"""The devices of the stages: of one kind, or groups of unlike ones in a row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tensoropt.compiler.cost.device import Device, Link
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.chunk_costs import Costs, NodeTimes
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["StageDevices", "stage_link"]


@dataclass(frozen=True)
class StageDevices:
    """One choice of strategies on the device of each stage.

    Stages in a row with like devices are a group. ``points`` has the choice on the device of each
    group, ``counts`` their numbers of stages. The links of neighbours in different groups are
    ``between``. ``most_bytes`` is the memory limit of each process, by default the memory of its
    device.
    """

    points: Sequence[FrontierPoint]
    counts: Sequence[int]
    between: Link | None = None
    most_bytes: int | None = None

    @classmethod
    def of_one_kind(
        cls, point: FrontierPoint, stages: int, most_bytes: int | None = None
    ) -> StageDevices:
        """Return the stages of a program on the devices that ``point`` was searched for."""
        return cls([point], [stages], most_bytes=most_bytes)

    @property
    def stages(self) -> int:
        return sum(self.counts)

    @property
    def first(self) -> FrontierPoint:
        """The choice on the device of the first stage."""
        return self.points[0]

    @cached_property
    def groups(self) -> list[int]:
        """The group of each stage."""
        return [group for group, count in enumerate(self.counts) for _ in range(count)]

    @property
    def devices(self) -> list[Device]:
        """The device of each stage."""
        return [self.points[group].tables.device for group in self.groups]

    @property
    def are_unlike(self) -> bool:
        return len(self.points) > 1

    @cached_property
    def limits_bytes(self) -> list[float]:
        """The memory of each stage for its tensors, infinite if there is no limit."""
        capacities = (device.memory_capacity_bytes for device in self.devices)
        limits = [most if self.most_bytes is None else self.most_bytes for most in capacities]
        if all(most is None for most in limits):
            return [math.inf] * self.stages
        return [math.inf if most is None else most - self.rest_bytes for most in limits]

    @cached_property
    def rest_bytes(self) -> int:
        """The memory of a process besides tensors, the same as with all layers."""
        return self.first.process_bytes - self.first.memory_bytes

    @cached_property
    def group_times(self) -> list[NodeTimes]:
        """The times of the nodes on the device of each group."""
        return [*map(NodeTimes, self.points)]

    def link(self, stage: int, other: int) -> Link:
        """Return the link between equal ranks of two stages."""
        group = self.groups[stage]
        if self.between is not None and group != self.groups[other]:
            return self.between
        point = self.points[group]
        return stage_link(point.tables.device, self.counts[group], point.mesh)

    def send_s(self, size: int, stage: int, readers: Iterable[int]) -> float:
        """Return the time in which bytes reach the slowest of some stages, 0 on the same stage."""
        links = (self.link(stage, other) for other in readers if other != stage)
        return max((link.send_s(size) for link in links), default=0.0)

    def costs(
        self,
        cuts: Sequence[int],
        places: Sequence[int],
        begins: Sequence[int] = (),
        *,
        splits: bool = False,
    ) -> list[Costs]:
        """Return the costs of the chunks that ``cuts`` begin, each on its stage of ``places``.

        They are a chain, except at the places ``begins``. ``splits``: gradients of weights are
        tasks of their own.
        """
        steps = [times.step(cuts, begins, splits=splits) for times in self.group_times]
        return [steps[self.groups[place]][number] for number, place in enumerate(places)]


def stage_link(device: Device, stages: int, mesh: Sequence[int]) -> Link:
    """Return the link between equal ranks of neighbouring stages of like devices."""
    return device.axis_links(Mesh((stages, *mesh)))[0]

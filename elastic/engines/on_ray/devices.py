"""The devices of a cluster: their names, and their reservation for a job."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from tensoropt.elastic.engines.on_ray.cluster import alive_nodes
from tensoropt.runtime.support.errors import UserError

__all__ = ["Devices"]

_FREE_S = 15.0  # to wait for devices that another job is giving back


class Devices:
    """GPUs, or shares of ``threads`` cores, as "node-0a1b2c3d/gpu:0".

    Each device is a placement group, reserved while a generation of the job runs on it. Two
    generations share it during a switch, so no generation waits for a device of its own job.
    """

    def __init__(self, provider: str, threads: int | None) -> None:
        self._bundle = {"GPU": 1.0} if provider == "cuda" else {"CPU": float(threads or 1)}
        self._kind = "gpu" if provider == "cuda" else "cpu"
        self._groups: dict[str, PlacementGroup] = {}
        self._users: Counter[str] = Counter()
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Return the devices of all live nodes."""
        ((resource, size),) = self._bundle.items()
        return [
            f"{node.name}/{self._kind}:{number}"
            for node in alive_nodes()
            for number in range(int(node.resources.get(resource, 0) // size))
        ]

    def node_of(self, device: str) -> str:
        """Return the full id of a device's node. Raises `UserError` if the node is gone."""
        name = device.partition("/")[0]
        for node in alive_nodes():
            if node.name == name:
                return node.id
        raise UserError(f"device {device}: expected a node that lives, got: {name}, which is gone")

    def take(self, devices: Sequence[str]) -> list[PlacementGroup]:
        """Reserve ``devices`` for another generation. Raises `UserError` if other jobs use them."""
        with self._lock:
            nodes = {name: self.node_of(name) for name in devices}
            new: dict[str, PlacementGroup] = {}
            for name in devices:
                if name not in self._groups:
                    where = [{"ray.io/node-id": nodes[name]}]
                    new[name] = placement_group([self._bundle], bundle_label_selector=where)
            end = time.monotonic() + _FREE_S
            taken = [
                name
                for name, group in new.items()
                if not group.wait(max(end - time.monotonic(), 0.1))  # even the last one
            ]
            if taken:
                for group in new.values():
                    remove_placement_group(group)
                raise UserError(
                    f"device {taken[0]}: expected a free one, got: one that other jobs of the Ray "
                    f"cluster have had for {_FREE_S:g} s"
                )
            self._groups.update(new)
            self._users.update(devices)
            return [self._groups[name] for name in devices]

    def give_back(self, devices: Sequence[str]) -> None:
        """Undo a `take`; release the devices that no generation uses any longer."""
        with self._lock:
            self._users.subtract(devices)
            for name in devices:
                if self._users[name] == 0 and (group := self._groups.pop(name, None)):
                    with suppress(Exception):  # the cluster may be gone
                        remove_placement_group(group)

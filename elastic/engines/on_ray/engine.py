"""The engine for a Ray cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tensoropt.elastic.engines.engine import Carrier, Host, Outcome
from tensoropt.elastic.engines.on_ray.carriage import RayCarrier, copy_to_neighbours
from tensoropt.elastic.engines.on_ray.cluster import alive_nodes, own_address
from tensoropt.elastic.engines.on_ray.devices import Devices
from tensoropt.elastic.engines.on_ray.host import RayHost
from tensoropt.elastic.engines.on_ray.porter import Porter
from tensoropt.elastic.generation.job import GenerationJob
from tensoropt.elastic.generation.parts import Part, Parts
from tensoropt.runtime.support.errors import one_line

__all__ = ["RayEngine"]

_AT_ONCE = 8  # concurrent calls of a porter


class RayEngine:
    """An engine on the GPUs of the cluster that this process has joined, or on shares of
    ``threads`` of its cores.

    Ray ends everything that it starts together with this process.
    """

    name = "ray"

    def __init__(self, provider: str = "cpu", threads: int | None = None) -> None:
        self._devices = Devices(provider, threads)
        self._porters: dict[str, Any] = {}
        self._spreading = threading.Lock()
        self._waiting: tuple[Parts, Future[Parts | None]] | None = None
        self._is_spreading = False

    def address(self, before: str | None) -> str:
        return f"{own_address()}:0"

    def devices(self) -> Sequence[str]:
        return self._devices.names()

    def start(
        self,
        job: GenerationJob,
        devices: Sequence[str],
        folder: Path,
        ended: Callable[[Outcome], None],
    ) -> Host:
        groups = self._devices.take(devices)

        def end(outcome: Outcome) -> None:
            self._devices.give_back(devices)
            ended(outcome)

        nodes = [self._devices.node_of(device) for device in devices]
        self._find_porters()
        return RayHost(job, groups, nodes, folder / "output.log", end)

    def find(
        self, facts: Mapping[str, Any], folder: Path, ended: Callable[[Outcome], None]
    ) -> Host | None:
        """Return None: no rank outlives the coordinator."""
        return None

    def carrier(self, parts: Parts, plan: str, nodes: Sequence[str]) -> Carrier:
        return RayCarrier(parts, plan, nodes, self._find_porters())

    def hold(self, parts: Sequence[Part]) -> list[Part]:
        by_node: dict[str, list[int]] = {}
        for number, part in enumerate(parts):
            by_node.setdefault(part.node, []).append(number)
        held = list(parts)
        for node, numbers in by_node.items():
            blocks = [parts[number].block for number in numbers]
            try:
                found = ray.get(self._porters[node].hold.remote(blocks))
            except (RayError, KeyError) as error:
                raise OSError(one_line(error)) from None
            for number, block in zip(numbers, found, strict=True):
                held[number] = Part(block, node)
        return held

    def drop(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if part.node in self._porters:
                self._porters[part.node].drop.remote([part.block])

    def spread(self, parts: Parts) -> Future[Parts | None]:
        """Queue a snapshot: one is copied at a time, and the newest one displaces a waiting one."""
        future: Future[Parts | None] = Future()
        with self._spreading:
            before, self._waiting = self._waiting, (parts, future)
            begins, self._is_spreading = not self._is_spreading, True
        if before is not None:
            before[1].set_result(None)
        if begins:
            threading.Thread(target=self._spread, daemon=True).start()
        return future

    def _spread(self) -> None:
        while True:
            with self._spreading:
                found, self._waiting = self._waiting, None
                self._is_spreading = found is not None
            if found is None:
                return
            parts, future = found
            result = None
            with suppress(Exception):  # the cluster may be gone: so is the snapshot
                porters = self._find_porters()
                result = copy_to_neighbours(parts, porters) if len(porters) > 1 else parts
            future.set_result(result)

    def _find_porters(self) -> dict[str, Any]:
        """Return the porters of all live nodes; start one on each new node."""
        alive = [node.id for node in alive_nodes()]
        for node in alive:
            if node not in self._porters:
                self._porters[node] = _porter_on(node)
        return {node: self._porters[node] for node in alive}

    def close(self) -> None:
        ray.shutdown()


def _porter_on(node: str) -> Any:
    where = NodeAffinitySchedulingStrategy(node, soft=False)
    actor = ray.remote(Porter)
    return actor.options(
        num_cpus=0, max_concurrency=_AT_ONCE, max_restarts=-1, scheduling_strategy=where
    ).remote()

"""A real Ray cluster on this machine, each of whose nodes has one core to give away."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tensoropt.elastic.engines.on_ray.cluster import short_name

__all__ = ["Nodes", "cluster"]

_STORE = 80 << 20  # bytes of a node's object store, about the least that Ray takes
_GONE_S = 20.0


class Nodes:
    """The nodes; the first is the one that jobs are started on."""

    def __init__(self, head: dict[str, Any]) -> None:
        from ray.cluster_utils import Cluster

        options = {
            "include_dashboard": False,
            "object_store_memory": _STORE,
            "_system_config": {"health_check_period_ms": 500, "health_check_failure_threshold": 3},
            **head,
        }
        self._cluster = Cluster(initialize_head=True, head_node_args=options)
        self.address: str = self._cluster.address
        self.first = short_name(self._cluster.head_node.node_id)
        self._others: dict[str, Any] = {}

    def add(self, **options: Any) -> str:
        """Add a node; returns its name."""
        node = self._cluster.add_node(object_store_memory=_STORE, **{"num_cpus": 1, **options})
        self._others[short_name(node.node_id)] = node
        return short_name(node.node_id)

    def remove(self, name: str) -> None:
        """End all processes of a node at once."""
        self._cluster.remove_node(self._others.pop(name), allow_graceful=False)

    def others(self) -> list[str]:
        return list(self._others)

    def at_least(self, others: int) -> None:
        """Have as many nodes beside the first."""
        while len(self._others) < others:
            self.add()

    def close(self) -> None:
        self._cluster.shutdown()


@contextmanager
def cluster(**head: Any) -> Iterator[Nodes]:
    """Run a cluster, of which nothing is left afterwards: no process, no file."""
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # Ray's sockets have long names
    own = {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own, of sockets that it leaves to the collector
            nodes = Nodes(head)
            try:
                yield nodes
            finally:
                nodes.close()
                _wait_until_gone(folder)
    finally:
        shutil.rmtree(folder)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _wait_until_gone(folder: Path) -> None:
    end = time.monotonic() + _GONE_S
    while (left := _processes(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    assert left == [], f"still there: {left}"


def _processes(folder: Path) -> list[str]:
    """Return the command lines of the processes that have a cluster's folder in theirs or in
    their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        if path.name == str(os.getpid()):
            continue
        with suppress(OSError):
            line = (path / "cmdline").read_bytes()
            if str(folder).encode() in line + (path / "environ").read_bytes():
                found.append(line.replace(b"\0", b" ").decode()[:200])
    return found

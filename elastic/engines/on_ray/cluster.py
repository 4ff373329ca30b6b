"""The Ray cluster that a job runs on: finding it, its nodes, and keeping Ray quiet."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from tensoropt.runtime.support.errors import UserError, one_line

__all__ = ["Node", "alive_nodes", "connect", "own_address", "short_name"]

_QUIET = {
    "RAY_ENABLE_AUTO_CONNECT": "0",  # calls after the end would begin anew
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of what it is going to do
    "RAY_USAGE_STATS_ENABLED": "0",
}
_SHORT = 8  # digits of a node's name that tell it from others


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, with as much of ``resources`` as Ray may give away."""

    id: str
    resources: dict[str, float]

    @property
    def name(self) -> str:
        return short_name(self.id)


def short_name(node: str) -> str:
    """Return what people call a node."""
    return f"node-{node[:_SHORT]}"


def connect(address: str) -> None:
    """Join the cluster at ``address``, "auto": that of this machine. Raises `UserError`."""
    os.environ.update({name: os.environ.get(name, value) for name, value in _QUIET.items()})
    try:
        import ray
    except ImportError:
        raise UserError(
            "--engine ray: ray is missing, expected: pip install tensoropt[ray]"
        ) from None
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # of many kinds: none there, another version, not reachable
        found = "none" if isinstance(error, ConnectionError) else one_line(error)
        raise UserError(
            f"--ray-address {address}: expected a Ray cluster (ray start --head), got: {found}"
        ) from None


def own_address() -> str:
    """Return the address at which other nodes reach this one."""
    import ray

    found: Any = ray.util.get_node_ip_address  # has no types
    return str(found())


def alive_nodes() -> list[Node]:
    """Return the nodes that Ray knows to live, this one first."""
    import ray

    own = ray.get_runtime_context().get_node_id()
    all_nodes: Any = ray.nodes  # has no types
    nodes = [Node(facts["NodeID"], facts["Resources"]) for facts in all_nodes() if facts["Alive"]]
    return sorted(nodes, key=lambda node: (node.id != own, node.id))

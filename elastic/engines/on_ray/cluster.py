"""The Ray cluster of a job: connection, nodes, and settings that silence Ray."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from tensoropt.runtime.support.errors import UserError, one_line

__all__ = ["Node", "alive_nodes", "connect", "own_address", "short_name"]

_QUIET = {
    "RAY_ENABLE_AUTO_CONNECT": "0",  # else a call after shutdown would start a cluster
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray warns about a future default
    "RAY_USAGE_STATS_ENABLED": "0",
}
_SHORT = 8  # digits of a node's id in its short name


@dataclass(frozen=True)
class Node:
    """A machine of the cluster; ``resources`` are the amounts that Ray may allocate on it."""

    id: str
    resources: dict[str, float]

    @property
    def name(self) -> str:
        return short_name(self.id)


def short_name(node: str) -> str:
    """Return a node's name in messages and devices."""
    return f"node-{node[:_SHORT]}"


def connect(address: str) -> None:
    """Join the cluster at ``address`` ("auto": this machine's cluster). Raises `UserError`."""
    os.environ.update({name: os.environ.get(name, value) for name, value in _QUIET.items()})
    try:
        import ray
    except ImportError:
        raise UserError(
            "--engine ray: ray is missing, expected: pip install tensoropt[ray]"
        ) from None
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # many types: no cluster, another version, not reachable
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
    """Return the nodes that Ray reports alive, this node first."""
    import ray

    own = ray.get_runtime_context().get_node_id()
    all_nodes: Any = ray.nodes  # has no types
    nodes = [Node(facts["NodeID"], facts["Resources"]) for facts in all_nodes() if facts["Alive"]]
    return sorted(nodes, key=lambda node: (node.id != own, node.id))

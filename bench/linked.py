"""Machines of ranks of one thread on a simulated link: their descriptions and environment."""

from __future__ import annotations

from pathlib import Path

__all__ = ["environment_of_link", "write_linked"]

_FLOP_PER_S, _MEMORY_BYTES_PER_S = 60e9, 6e9
"""Rates of a rank that is not slower than first described."""
_DESCRIPTION = """\
name = "linked"
launch_overhead_s = {launch_s}
devices_per_node = {ranks}

[peak_flop_per_s]
float32 = {flop_per_s}

[efficiency]
contraction = 1.0

[memory]
bandwidth_bytes_per_s = {memory_bytes_per_s}
capacity_bytes = 8e9

[link.intra_node]
latency_s = {latency_s}
bandwidth_bytes_per_s = {bytes_per_s}

[link.network]
latency_s = {latency_s}
bandwidth_bytes_per_s = {bytes_per_s}
"""


def write_linked(
    folder: Path,
    ranks: int,
    slower: float,
    *,
    launch_s: float,
    latency_s: float,
    bytes_per_s: float,
    more: str = "",
) -> Path:
    """Write the description of a machine, which ends with ``more``; return its path.

    Its ranks compute ``slower`` times slower than first described, and launch in ``launch_s``.
    """
    path = folder / "linked.toml"
    text = _DESCRIPTION.format(
        launch_s=launch_s * slower,
        flop_per_s=_FLOP_PER_S / slower,
        memory_bytes_per_s=_MEMORY_BYTES_PER_S / slower,
        latency_s=latency_s,
        bytes_per_s=bytes_per_s,
        ranks=ranks,
    )
    path.write_text(text + more, encoding="utf-8")
    return path


def environment_of_link(latency_s: float, bytes_per_s: float) -> dict[str, str]:
    """Return the variables that simulate a link between the ranks of a process."""
    return {
        "TENSOROPT_LINK_LATENCY_S": str(latency_s),
        "TENSOROPT_LINK_BYTES_PER_S": str(bytes_per_s),
    }

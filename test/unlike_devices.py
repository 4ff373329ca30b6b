"""Descriptions of devices that differ in speed and memory, for tests of unlike groups."""

from __future__ import annotations

from pathlib import Path

__all__ = ["described"]


def described(folder: Path, name: str, speed: float, capacity_bytes: float = 1e9) -> str:
    """Write the description of a device, ``speed`` times as fast as others; return its path."""
    text = f"""
name = "{name}"
launch_overhead_s = {1e-6 / speed}
devices_per_node = 4
[peak_flop_per_s]
float32 = {1e10 * speed}
[efficiency]
contraction = 1.0
[memory]
bandwidth_bytes_per_s = {1e10 * speed}
capacity_bytes = {capacity_bytes}
[link.intra_node]
latency_s = 1e-6
bandwidth_bytes_per_s = 1e10
[link.network]
latency_s = 1e-5
bandwidth_bytes_per_s = 1e9
"""
    (folder / f"{name}.toml").write_text(text)
    return str(folder / f"{name}.toml")

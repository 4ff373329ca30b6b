"""What the process of a rank takes beside tensors: of graphs that have next to none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tensoropt.compiler.calibrate.graphs import chain
from tensoropt.compiler.calibrate.ranks import MeasuredGraph, Ranks
from tensoropt.compiler.cost.process import Process

__all__ = ["measure_process"]

_NODES = 1025
_SECONDS = 0.05


def measure_process(ranks: Ranks, count: int, folder: Path, base: Process | None) -> Process | None:
    """Return what processes of up to ``count`` ranks take, None where the system does not say.

    What a job that trains or has collectives takes more, and the gaps of the arena, are those of
    ``base``: the libraries' own, the same on all machines.
    """
    short, long = (chain(folder / f"process{nodes}.onnx", nodes) for nodes in (1, _NODES))
    sizes = [_process_bytes(ranks, *one) for one in ((short, 1), (long, 1), (short, count))]
    one, many, together = sizes
    if one is None or many is None or together is None:
        return None
    each = max(together - one, 0) // max(count - 1, 1)
    node = max(many - one, 0) // (_NODES - 1)
    known = base or Process(1)
    return replace(known, floor_bytes=one - node, communicator_bytes=each, node_bytes=node)


def _process_bytes(ranks: Ranks, path: Path, count: int) -> int | None:
    """Return the most that the process of a rank had, in a job of its own."""
    return ranks.process_bytes(MeasuredGraph("processes", str(path)), count, _SECONDS)

"""Measurement of a rank's process memory other than tensors, with graphs of tiny tensors."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tensoropt.compiler.calibrate.graphs import chain
from tensoropt.compiler.calibrate.ranks import MeasuredGraph, Ranks
from tensoropt.compiler.cost.process import Process
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.launch.start import start
from tensoropt.runtime.support.job import Job

__all__ = ["measure_process", "plan_process_bytes"]

_NODES = 1025
_SECONDS = 0.05
_INTEGERS = (0, 2)  # valid rows of every table


def measure_process(ranks: Ranks, count: int, folder: Path, base: Process | None) -> Process | None:
    """Return the memory of processes of up to ``count`` ranks; None if it cannot be measured.

    The terms of training, collectives and gaps, and the margin, come from ``base``: they depend on
    libraries, not on machines. Chains of additions load few parts of these libraries, so ``base``,
    which comes from plans of real models, is a lower bound of the floor and the bytes of a node.
    The error of ``base`` is dropped.
    """
    paths = (chain(folder / f"process{nodes}.onnx", nodes) for nodes in (1, _NODES))
    short, long = (MeasuredGraph("processes", str(path)) for path in paths)
    runs = ((short, 1), (long, 1), (short, count))  # each in a job of its own
    one, many, together = (ranks.process_bytes(graph, n, _SECONDS) for graph, n in runs)
    if one is None or many is None or together is None:
        return None
    each = max(together - one, 0) // max(count - 1, 1)
    node = max(many - one, 0) // (_NODES - 1)
    known = base or Process(1)
    return replace(
        known,
        floor_bytes=max(one - node, known.floor_bytes),
        communicator_bytes=each,
        node_bytes=max(node, known.node_bytes),
        error=None,
    )


def plan_process_bytes(ranks: Ranks, folder: Path) -> int | None:
    """Return the peak memory of a rank's process that runs the plan in ``folder`` in its own job.

    ``None`` for a plan that does not run, for devices other than CPUs, and after ``ranks.until``.
    """
    late = ranks.until is not None and time.monotonic() + ranks.start_s > ranks.until
    if late or ranks.options.provider != CPU.name:
        return None
    job = Job((str(folder),), runs=1, int_range=_INTEGERS, **vars(ranks.options))
    try:
        [found] = start(job)
    except UserError:
        return None
    return found.peak_bytes if found.error is None else None

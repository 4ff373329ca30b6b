"""Identification of the machine; only measurements of equal machines can be merged."""

from __future__ import annotations

import platform
from pathlib import Path

import onnxruntime

from tensoropt.compiler.calibrate.ranks import Ranks
from tensoropt.compiler.cost.machine import Machine

__all__ = ["machine_of"]

_CPU_INFO = Path("/proc/cpuinfo")


def machine_of(ranks: Ranks, count: int) -> Machine:
    """Return the description of this machine, on which up to ``count`` ranks measure together."""
    options = ranks.options
    processor = _processor() if options.provider == "cpu" else ranks.gpus().gpu_names[0]
    version = onnxruntime.__version__.rpartition(".")[0]
    return Machine(processor, options.provider, count, options.threads or 1, version)


def _processor() -> str:
    """Return the name of the processor if Linux has it, else its family."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())

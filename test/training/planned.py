"""The fastest plan of a model under pins: its collectives, and its results on simulated ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from training.simulated import error_of

from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.pipeline.driver import load, run_phase
from tensoropt.dialects.onnx import function, walk
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.collectives import COLLECTIVES

__all__ = ["STEP", "collectives", "error", "searched"]

STEP = ("--train", "--loss", "mse:y,labels", "--optimizer", "sgd", "--recompute", "none")
"""Flags of a training step of the output y."""


def searched(path: Path, ranks: int, pins: Sequence[str], *flags: str) -> Path:
    """Return the text of the fastest plan of a model on a mesh of one axis."""
    text = path.with_suffix(".mlir")
    given = [*(f"--pin={pin}" for pin in pins), "--mesh", str(ranks), "--device", "a100"]
    picked = ["--pick", "fastest", "--epsilon", "0.1", "--emit", "search", "-o", str(text)]
    assert main([str(path), *given, *flags, *picked]) == 0
    return text


def collectives(text: Path) -> Counter[str]:
    """Return the collectives of a searched plan, before any are fused."""
    module = load(text, {})
    run_phase(module, "reshard")
    run_phase(module, "partition")
    names = [op.name.partition(".")[2] for op in walk(function(module))]
    return Counter(name for name in names if name in COLLECTIVES)


def error(text: Path, ranks: int) -> float:
    """Return the largest relative error of a searched plan with known sizes."""
    split = load(text, {})
    run_phase(split, "reshard")
    return error_of(load(text, {}), split, Mesh((ranks,)))

"""Graphs of the benchmark models, ready to be searched."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphs.catalog import MODELS
from graphs.trained import LOSS

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.training.spec import Optimizer, TrainingSpec, parse_loss
from tensoropt.dialects.mlir import ir
from tensoropt.passes.build_training_step import BuildTrainingStepPass

__all__ = ["model_graph", "prepare_model", "training_graph", "training_spec"]


def model_graph(name: str, **sizes: int) -> Graph:
    """Return the graph of a model of the catalogue with ``sizes`` replaced and rules attached."""
    module = prepare_model(name, sizes)
    driver.advance(module, "rules")
    return read_graph(module)


def training_graph(name: str, **sizes: int) -> Graph:
    """Return the graph of a training step of a catalogue model with AdamW."""
    module = prepare_model(name, sizes)
    driver.train(module, BuildTrainingStepPass.from_spec(training_spec()))
    return read_graph(module)


def training_spec(optimizer: str = "adamw", **options: Any) -> TrainingSpec:
    """Return the spec of a step with a loss on `scores` and `labels`.

    Every weight is trained except the constants of `Builder.constant`.
    """
    return TrainingSpec(parse_loss(LOSS), Optimizer(optimizer), freeze=("constant_*",), **options)


def prepare_model(name: str, sizes: Mapping[str, Any]) -> ir.Module:
    """Return the prepared forward graph of a model of the catalogue with ``sizes`` replaced."""
    model: Any = replace(MODELS[name], **sizes)  # type: ignore[type-var]
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        module = driver.load(model.build(name).save(Path(folder)), {})
        driver.run_phase(module, "prepare")
    return module

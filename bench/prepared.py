"""The benchmark models, ready to be searched."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphs.catalog import MODELS

from tensoropt.compiler import driver
from tensoropt.compiler.search.graph import Graph, read_graph

__all__ = ["model_graph"]


def model_graph(name: str, **sizes: int) -> Graph:
    """Build a model of the catalogue, with some of its sizes changed, and prepare its graph."""
    model: Any = replace(MODELS[name], **sizes)  # type: ignore[type-var]
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        module = driver.load(model.build(name).save(Path(folder)), {})
        driver.run_phase(module, "prepare")
    return read_graph(module)

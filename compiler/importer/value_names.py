"""A model's names of the tensors between its nodes, which the IR drops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensoropt.compiler.importer.model_file import load_model

__all__ = ["activation_names"]


def activation_names(path: Path) -> Mapping[str, tuple[str, int]]:
    """Return, for each tensor name, the node that computes it and the index of the result.

    Nodes have the same names as in the IR. Weights are not read. Raises UserError if the model is
    invalid.
    """
    graph = load_model(path).graph
    return {
        name: (node.name, number)
        for node in graph.node
        for number, name in enumerate(node.output)
        if name
    }

"""What a model calls the tensors between its nodes, which the IR does not keep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensoropt.compiler.importer.model_file import load_model

__all__ = ["activation_names"]


def activation_names(path: Path) -> Mapping[str, tuple[str, int]]:
    """Return, by the name of each, the node that makes a tensor and which of its outputs it is.

    Nodes are called as in the IR. No weight is read. Raises UserError for no valid model.
    """
    graph = load_model(path).graph
    return {
        name: (node.name, number)
        for node in graph.node
        for number, name in enumerate(node.output)
        if name
    }

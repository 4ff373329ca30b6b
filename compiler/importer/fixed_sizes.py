"""Sizes that keep ONNX Runtime from loading a model that it loads without them.

A model may look at a size to choose a branch of an `If`. Where the size is fixed, ONNX Runtime
infers the shapes of the other branch too, which need not be possible: then it refuses the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import onnx

from tensoropt.compiler.importer.dimensions import bind_dims
from tensoropt.compiler.protos.subgraphs import subgraphs
from tensoropt.compiler.shapes.runtime_types import refusal
from tensoropt.compiler.support.errors import UserError

__all__ = ["check_sizes", "has_bodies"]

_LAST = re.compile(r"Node \((?P<node>[^()]*)\) Op \((?P<op>\w+)\) \[\w+\] (?P<what>[^\[\]]*)$")


def has_bodies(proto: onnx.ModelProto) -> bool:
    """Say whether a node of the model has a graph of its own."""
    return sum(1 for _ in subgraphs(proto.graph)) > 1


def check_sizes(path: Path, proto: onnx.ModelProto, dims: Mapping[str, int]) -> None:
    """Raise UserError where ``dims`` keep ONNX Runtime from loading ``proto``, which is without.

    It names those of which each alone does, if left open. Loads the model a few times.
    """
    refused = _refused(path, proto, dims)
    if refused is None or _refused(path, proto, {}) is not None:
        return
    rest = {name: {n: s for n, s in dims.items() if n != name} for name in dims}
    blamed = [name for name in dims if _refused(path, proto, rest[name]) is None] or [*dims]
    listed = " or ".join(f"'{name}'" for name in blamed)
    flags = " ".join(f"--dim {name}={dims[name]}" for name in blamed)
    raise UserError(
        f"{path}: ONNX Runtime does not load the model with {flags}, expected {listed} left open: "
        f"{_said(refused)}"
    )


def _refused(path: Path, proto: onnx.ModelProto, dims: Mapping[str, int]) -> str | None:
    asked = onnx.ModelProto()
    asked.CopyFrom(proto)
    bind_dims(path, asked, dims)
    for graph, _ in subgraphs(asked.graph):
        del graph.value_info[:]  # which may be those of other sizes
        for end in graph.output:
            if end.type.HasField("tensor_type"):
                end.type.tensor_type.ClearField("shape")
    return refusal(asked)


def _said(text: str) -> str:
    """Return what is wrong at the innermost node."""
    line = " ".join(text.split())
    last = _LAST.search(line)
    if last is None:
        return line
    return f"node '{last['node']}' ({last['op']}): {last['what'].strip()}"

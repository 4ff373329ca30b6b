"""Fixed sizes that prevent ONNX Runtime from loading a model.

A model may choose a branch of an `If` by a size. If the size is fixed, ONNX Runtime infers the
shapes of the other branch too. If these are inconsistent, it refuses the model.
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
    """Return whether a node of the model has a subgraph."""
    return sum(1 for _ in subgraphs(proto.graph)) > 1


def check_sizes(path: Path, proto: onnx.ModelProto, dims: Mapping[str, int]) -> None:
    """Raise UserError if ``dims`` prevent ONNX Runtime from loading ``proto``.

    ``proto`` has open sizes; the error names each size that must be left open. Loads the model a
    few times.
    """
    load_error = _load_error(path, proto, dims)
    if load_error is None or _load_error(path, proto, {}) is not None:
        return
    rest = {name: {n: s for n, s in dims.items() if n != name} for name in dims}
    blamed = [name for name in dims if _load_error(path, proto, rest[name]) is None] or [*dims]
    listed = " or ".join(f"'{name}'" for name in blamed)
    flags = " ".join(f"--dim {name}={dims[name]}" for name in blamed)
    raise UserError(
        f"{path}: ONNX Runtime does not load the model with {flags}, expected {listed} left open: "
        f"{_shorten(load_error)}"
    )


def _load_error(path: Path, proto: onnx.ModelProto, dims: Mapping[str, int]) -> str | None:
    fixed = onnx.ModelProto()
    fixed.CopyFrom(proto)
    bind_dims(path, fixed, dims)
    for graph, _ in subgraphs(fixed.graph):
        del graph.value_info[:]  # may be stale
        for end in graph.output:
            if end.type.HasField("tensor_type"):
                end.type.tensor_type.ClearField("shape")
    return refusal(fixed)


def _shorten(text: str) -> str:
    """Return the problem at the innermost node of an error message."""
    line = " ".join(text.split())
    last = _LAST.search(line)
    if last is None:
        return line
    return f"node '{last['node']}' ({last['op']}): {last['what'].strip()}"

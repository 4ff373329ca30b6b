"""A whole random model of a seed, with its inputs and what ONNX Runtime says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fuzz.builder import Array, Builder, UnsuitableError, Value, info_of, model_of, session_of
from fuzz.operators import MAKERS

__all__ = ["Case", "random_case"]

OPSETS = range(13, 23)
_TYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool")
_TYPE_CHANCES = (0.68, 0.05, 0.04, 0.08, 0.04, 0.03, 0.03, 0.05)
_ATTEMPTS = 200


@dataclass
class Case:
    """A model and its inputs. ``inexact`` names the floats whose last places may differ.

    ``dims`` are the sizes of its symbolic dimensions; ``given`` says that the compiler is told.
    """

    seed: int
    model: onnx.ModelProto
    feeds: dict[str, Array]
    inexact: frozenset[str] = frozenset()
    dims: dict[str, int] = field(default_factory=dict)
    given: bool = False

    @property
    def operators(self) -> set[str]:
        """The operators of the main graph, with their domains."""
        return {f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in self.model.graph.node}

    def wanted(self, *, optimised: bool = False) -> list[Any]:
        """Return what ONNX Runtime gives on one device."""
        session = session_of(self.model.SerializeToString(), optimised=optimised)
        return list(session.run(None, {name: x.copy() for name, x in self.feeds.items()}))


def random_case(seed: int, most_nodes: int = 14) -> Case:
    """Return the case of a seed, always the same; its model runs."""
    rng = np.random.default_rng(seed)
    while True:
        builder = Builder(rng, int(rng.choice(list(OPSETS))))
        _grow(builder, builder.integer(2, most_nodes))
        try:
            case = _finished(builder, seed)
            if _is_certain(case):
                return case
        except Exception:  # the nodes run one by one; a few of ONNX Runtime's do not run together
            continue


def _is_certain(case: Case) -> bool:
    """Say whether two runs give the same: some kernels leave memory as it was."""
    pairs = zip(case.wanted(), case.wanted(), strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _grow(b: Builder, nodes: int) -> None:
    for _ in range(b.integer(1, 3)):
        shape = [b.size() for _ in range(b.choose((0, 1, 2, 2, 2, 3, 3, 3, 4, 4)))]
        kind = str(b.rng.choice(_TYPES, p=_TYPE_CHANCES))
        if np.prod(shape) <= 2048:
            b.input(shape, kind, exact=b.flip(0.75))
    makers = [m for m in MAKERS if m.since <= b.opset]
    weights = np.array([m.weight for m in makers])
    chances = weights / weights.sum()
    for _ in range(_ATTEMPTS):
        if len(b.nodes) >= nodes:
            return
        try:
            makers[int(b.rng.choice(len(makers), p=chances))].add(b)
        except UnsuitableError:
            continue


def _finished(b: Builder, seed: int) -> Case:
    outputs = _outputs(b)
    graph = helper.make_graph(b.nodes, "g", [], [_end(b, v, name) for v, name in outputs], b.stored)
    model = model_of(graph, b.opset, b.domains)
    dims = _symbols(b) if b.flip(0.3) else {}
    sizes = {size: name for name, size in dims.items()}
    for value in b.inputs:
        fixed = value.name in b.fixed
        named = [sizes[n] if n in sizes and not fixed and b.flip(0.7) else n for n in value.shape]
        model.graph.input.append(info_of(value.name, value.array, named))
    used = {d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim}
    dims = {name: size for name, size in dims.items() if name in used}
    feeds = {value.name: value.array for value in b.inputs}
    return Case(seed, model, feeds, frozenset(b.inexact), dims, b.flip())


def _symbols(b: Builder) -> dict[str, int]:
    sizes = sorted({n for value in b.inputs for n in value.shape if n > 1})
    return {f"n{size}": size for size in sizes if b.flip(0.6)}


def _outputs(b: Builder) -> list[tuple[Value, str]]:
    """Return what the graph gives: what nothing uses, and some of what is used inside."""
    read = {name for node in b.nodes for name in node.input}
    made = [v for v in b.values if not v.is_input and not v.is_constant]
    kept = [v for v in made if (v.name not in read and b.flip(0.9)) or b.flip(0.12)]
    kept += [v for v in b.inputs if b.flip(0.06)]
    kept += [v for v in b.values if v.is_constant and b.flip(0.02)]
    if not kept:
        kept = b.values[-1:]
    ends = [(value, value.name) for value in kept]
    if b.flip(0.1):
        twice = b.choose(kept)
        name = f"twice_{twice.name}"
        b.nodes.append(helper.make_node("Identity", [twice.name], [name], name))
        ends.append((twice, name))
        if twice.name in b.inexact:
            b.inexact.add(name)
    return ends


def _end(b: Builder, value: Value, name: str) -> onnx.ValueInfoProto:
    """Return the declaration of an output, whose shape may stay unsaid."""
    dims = list(value.shape) if b.flip(0.4) else [None] * value.rank
    return info_of(name, value.array, dims)

"""What an emitted rank graph implies for memory, read with nothing but the onnx package.

The oracle for the predicted memory: bytes of the initializers, and the peak of what is alive when
the nodes run in file order, each tensor from the node that makes it to the last that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

_RANDOM = ("Random", "Bernoulli", "Multinomial")


@dataclass(frozen=True)
class EmittedMemory:
    """Bytes of one rank: what stays for the whole run, and the most that comes and goes."""

    static_bytes: int
    transient_bytes: int

    @property
    def memory_bytes(self) -> int:
        return self.static_bytes + self.transient_bytes


def emitted_memory(
    path: Path, staying: Set[str] = frozenset(), overwriting: Set[str] = frozenset()
) -> EmittedMemory:
    """Return the memory that the graph in ``path`` implies.

    What follows from initializers alone is folded by ONNX Runtime when it loads the model, and what
    nothing reads then is freed: what a running node reads, or is returned, counts as static. So
    do the inputs that are ``staying`` from run to run, such as a decoder's caches. Outputs that are
    ``overwriting`` such an input take no memory.
    """
    graph = onnx.load(path, load_external_data=False).graph
    sizes = {v.name: _bytes(v) for v in (*graph.input, *graph.value_info, *graph.output)}
    weights = {t.name: _tensor_bytes(t) for t in graph.initializer}
    folded = _folded(graph, set(weights))
    running = [n for n in graph.node if not set(filter(None, n.output)) <= folded.keys()]
    read = {name for node in running for name in node.input} | {v.name for v in graph.output}
    static = sum(size for name, size in weights.items() if name in read)
    static += sum({key: sizes[name] for name, key in folded.items() if name in read}.values())
    static += sum(sizes[name] for name in staying)
    held = folded.keys() | weights.keys() | staying | overwriting
    return EmittedMemory(static, _peak(graph, running, sizes, held))


def _folded(graph: onnx.GraphProto, known: set[str]) -> dict[str, str]:
    """Return what follows from ``known`` alone, and what it follows by: equal nodes become one."""
    made: dict[str, str] = {}
    for node in graph.node:
        inputs = set(filter(None, node.input))
        pure = node.domain != "tensoropt" and not node.op_type.startswith(_RANDOM)
        if pure and inputs <= known | made.keys():
            held = sorted(attribute.SerializeToString() for attribute in node.attribute)
            key = (node.domain, node.op_type, [made.get(name, name) for name in node.input], held)
            made.update({name: f"{key} {i}" for i, name in enumerate(node.output) if name})
    return made


def _peak(
    graph: onnx.GraphProto, running: list[onnx.NodeProto], sizes: dict[str, int], fixed: set[str]
) -> int:
    first = {v.name: 0 for v in graph.input}
    last = dict(first)
    for step, node in enumerate(running):
        for name in filter(None, node.output):
            first[name] = last[name] = step
        for name in node.input:
            if name in last:
                last[name] = step
    last.update((v.name, len(running)) for v in graph.output if v.name in first)
    change = np.zeros(len(running) + 2, dtype=np.int64)
    for name in first.keys() - fixed:
        change[first[name]] += sizes[name]
        change[last[name] + 1] -= sizes[name]
    return int(np.cumsum(change).max(initial=0))


def _bytes(value: onnx.ValueInfoProto) -> int:
    tensor = value.type.tensor_type
    count = math.prod(d.dim_value for d in tensor.shape.dim if d.HasField("dim_value"))
    return count * _item_bytes(tensor.elem_type)


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    return math.prod(tensor.dims) * _item_bytes(tensor.data_type)


def _item_bytes(data_type: int) -> int:
    return int(onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize)

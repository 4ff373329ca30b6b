"""A differentiable graph, node by node as ONNX and as PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import helper, numpy_helper

__all__ = [
    "Array",
    "Graph",
    "Node",
    "gradients",
    "model_of",
    "replay",
    "tensor_of",
    "trainable",
]

Array = npt.NDArray[Any]
TorchFunction = Callable[..., Any]

_IR_VERSION = 10


@dataclass(frozen=True)
class Node:
    """One operator; ``torch`` maps its operands (``None`` for an omitted one) to its results.

    An empty name stands for what is omitted. ``captured`` are values that its subgraphs read, or
    whose type ``torch`` wants to know; they are its last operands. ``refused`` says that the node
    has no gradient: where a weight is before it, and the loss behind, there is an error that names
    the node.
    """

    op_type: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    torch: TorchFunction = field(repr=False)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    captured: tuple[str, ...] = ()
    refused: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """What the node reads, an empty name for what is omitted."""
        return (*self.operands, *self.captured)

    @property
    def name(self) -> str:
        """The name of the node: that of its first result."""
        return f"node_{next(name for name in self.results if name)}"


@dataclass(frozen=True)
class Graph:
    """Nodes in order, with their leaves: ``inputs`` are data, ``weights`` initializers,
    ``literals`` tensors of Constant nodes. ``loss`` is ``KIND:OUTPUT[,LABELS]`` as flags have it;
    ``outputs`` are given away beside what the loss reads.
    """

    opset: int
    dtype: str
    nodes: tuple[Node, ...]
    inputs: Mapping[str, Array]
    weights: Mapping[str, Array]
    literals: Mapping[str, Array]
    loss: str
    outputs: tuple[str, ...] = ()

    @property
    def leaves(self) -> dict[str, Array]:
        """All that no node makes, by name."""
        return {**self.inputs, **self.weights, **self.literals}

    @property
    def result(self) -> str:
        """The name of the value that the loss reads."""
        return self.loss.partition(":")[2].partition(",")[0]

    @property
    def labels(self) -> str:
        """The name of the labels, none with "output"."""
        return self.loss.partition(":")[2].partition(",")[2]


def model_of(graph: Graph) -> onnx.ModelProto:
    """Return the graph as a model, whose node order is that of the graph."""
    literals = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))
        for name, array in graph.literals.items()
    ]
    nodes = [
        helper.make_node(
            n.op_type, n.operands, n.results, name=n.name, domain=n.domain, **n.attributes
        )
        for n in graph.nodes
    ]
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in graph.inputs.items()
        if n != graph.labels
    ]
    told = _told(graph)
    results = [
        told.pop(name, onnx.ValueInfoProto(name=name)) for name in (graph.result, *graph.outputs)
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in graph.weights.items()]
    held = helper.make_graph(
        [*literals, *nodes], "random", inputs, results, weights, value_info=list(told.values())
    )
    imports = [helper.make_opsetid("", graph.opset)]
    imports += [helper.make_opsetid(domain, 1) for domain in {n.domain for n in graph.nodes} - {""}]
    return helper.make_model(held, opset_imports=imports, ir_version=_IR_VERSION)


_TOLD = ("GroupNormalization", "MeanVarianceNormalization")
"""Operators whose results ONNX infers no shape of, which models have to tell."""


def _told(graph: Graph) -> dict[str, onnx.ValueInfoProto]:
    names = [node.results[0] for node in graph.nodes if node.op_type in _TOLD]
    if not names:
        return {}
    values = {name: tensor_of(array, torch.float64) for name, array in graph.leaves.items()}
    replay(graph.nodes, values)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(graph.dtype))
    return {n: helper.make_tensor_value_info(n, kind, values[n].shape) for n in names}


def replay(nodes: Sequence[Node], values: dict[str, Any]) -> None:
    """Add what ``nodes`` make to the tensors ``values``, by name."""
    for node in nodes:
        operands = [values[name] if name else None for name in node.reads]
        found = node.torch(*operands)
        results = found if isinstance(found, tuple | list) else (found,)
        values.update((n, x) for n, x in zip(node.results, results, strict=True) if n)


def gradients(graph: Graph, dtype: Any) -> tuple[Any, dict[str, Array]]:
    """Return the loss and its gradient for every floating point weight, computed in ``dtype``."""
    values = {name: tensor_of(array, dtype) for name, array in graph.leaves.items()}
    weights = [n for n in graph.weights if values[n].is_floating_point()]
    for name in weights:
        values[name].requires_grad_()
    replay(graph.nodes, values)
    loss = _loss(graph, values)
    found = [None] * len(weights)
    if loss.requires_grad:
        found = torch.autograd.grad(loss, [values[n] for n in weights], allow_unused=True)
    pairs = zip(weights, found, strict=True)
    held = {n: np.zeros(graph.weights[n].shape) if g is None else g.double().numpy()
            for n, g in pairs}  # fmt: skip
    return float(loss.detach()), held


def trainable(graph: Graph) -> set[str]:
    """Return the weights that a step has to train: not whole numbers, scalars, nor statistics."""
    statistics = {n for node in graph.nodes if node.op_type == "BatchNormalization"
                  for n in node.operands[3:5]}  # fmt: skip
    own = {n for n, a in graph.weights.items() if a.dtype.kind == "f" and a.ndim}
    return own - statistics


def _loss(graph: Graph, values: Mapping[str, Any]) -> Any:
    kind, value = graph.loss.partition(":")[0], values[graph.result]
    if kind == "output":
        return value.reshape(())
    labels = values[graph.labels]
    if kind == "mse":
        return torch.nn.functional.mse_loss(value, labels)
    return torch.nn.functional.cross_entropy(value.reshape(-1, value.shape[-1]), labels.reshape(-1))


def tensor_of(array: Array, dtype: Any) -> Any:
    """Return a tensor of an array, floating point ones in ``dtype``."""
    held = torch.tensor(array)
    return held.to(dtype) if held.is_floating_point() else held

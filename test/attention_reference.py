"""Attention in float64 with a matrix of scores, and models of one attention and its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

__all__ = [
    "Case",
    "Options",
    "array_of",
    "arrays_of",
    "gradient_model",
    "integers",
    "operands",
    "reference",
    "seeds",
    "shapes",
]

_MIX = 0x2545F4914F6CDD1C
"""The number that dropout adds to the product of two seeds."""

_TYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
}


@dataclass(frozen=True)
class Options:
    """Attributes of an attention, and its offset."""

    scale: float = 0.125
    causal: bool = False
    window: int = 0
    softcap: float = 0.0
    offset: int = 0

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of a node."""
        numbers = {"causal": int(self.causal), "window": self.window}
        return {"scale": self.scale, "softcap": self.softcap, **numbers}


@dataclass(frozen=True)
class Case:
    """Sizes and options of an attention."""

    batch: int = 1
    key_heads: int = 1
    group: int = 1
    queries: int = 1
    keys: int = 1
    size: int = 16
    value_size: int = 16
    options: Options = field(default_factory=Options)
    bias: tuple[bool, bool, bool] | None = None
    """Which of the batch, heads and queries the bias has in full."""
    lengths: tuple[int, ...] | None = None
    is_masked: bool = False
    """Some of the bias is minus infinity."""
    type: torch.dtype = torch.float32
    factor: float = 1.0
    """Of the queries: large scores."""
    ratio: float = 0.0
    """The share of weights that are dropped."""

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of a node."""
        if not self.ratio:
            return self.options.attributes()
        drop = {
            "drop_mix": _MIX,
            "drop_threshold": int((self.ratio - 0.5) * 2**64),
            "drop_scale": 1 / (1 - self.ratio),
        }
        return {**self.options.attributes(), **drop}


def shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of floats."""
    heads = case.key_heads * case.group
    of = {
        "q": (case.batch, heads, case.queries, case.size),
        "k": (case.batch, case.key_heads, case.keys, case.size),
        "v": (case.batch, case.key_heads, case.keys, case.value_size),
        "dy": (case.batch, heads, case.queries, case.value_size),
    }
    if case.bias is not None:
        full = (case.batch, heads, case.queries)
        rows = [n if is_full else 1 for n, is_full in zip(full, case.bias, strict=True)]
        of["bias"] = (*rows, case.keys)
    return of


def operands(case: Case, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return random operands."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {n: torch.randn(s, generator=generator) for n, s in shapes(case).items()}
    tensors["q"] *= case.factor
    if case.is_masked:
        draws = torch.rand(tensors["bias"].shape, generator=generator)
        tensors["bias"][draws < 0.3] = -torch.inf
    return {name: tensor.to(case.type) for name, tensor in tensors.items()}


def seeds(case: Case) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return random seeds of rows and of keys."""
    generator = np.random.default_rng(7)
    heads = case.key_heads * case.group
    rows, keys = (case.batch, heads, case.queries, 1), (1, 1, 1, case.keys)
    return tuple(generator.integers(-(2**63), 2**63, size, np.int64) for size in (rows, keys))


def _kept(case: Case) -> torch.Tensor:
    """Return the factors of weights: 0 where dropout drops them."""
    rows, keys = (array.astype(np.uint64) for array in seeds(case))
    drop = case.attributes()
    product = rows * keys
    hashes = (product * (product + np.uint64(drop["drop_mix"]))).astype(np.int64)
    return torch.tensor(np.where(hashes > drop["drop_threshold"], drop["drop_scale"], 0.0))


def reference(
    case: Case, tensors: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Return y, the logarithms of sums, and the gradients by operand, by PyTorch in float64."""
    leaves = {n: t.double().requires_grad_() for n, t in tensors.items() if n != "dy"}
    y, lse = _attend(case, leaves)
    gradients = torch.autograd.grad(
        y, list(leaves.values()), tensors["dy"].double(), materialize_grads=True, allow_unused=True
    )
    return y.detach(), lse.detach(), dict(zip(leaves, gradients, strict=True))


def _attend(case: Case, leaves: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    options = case.options
    q, k, v = leaves["q"], *(leaves[n].repeat_interleave(case.group, 1) for n in "kv")
    scores = q @ k.transpose(-1, -2) * options.scale
    if options.softcap:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    is_read = _reads(case).expand(scores.shape)
    if (bias := leaves.get("bias")) is not None:
        scores = scores + bias.nan_to_num(neginf=0.0)
        is_read = is_read & (bias != -torch.inf)
    has_keys = is_read.any(-1, keepdim=True)
    # Rows without keys have finite scores, as autograd's gradients would not be numbers otherwise.
    scores = scores.masked_fill(~is_read & has_keys, -torch.inf)
    lse = torch.logsumexp(scores, -1).masked_fill(~has_keys[..., 0], -torch.inf)
    weights = torch.softmax(scores, -1) * is_read
    return (weights * _kept(case) if case.ratio else weights) @ v, lse


def _reads(case: Case) -> torch.Tensor:
    """Return whether a query reads a key, of shape [batch, 1, queries, keys]."""
    options = case.options
    positions = torch.arange(case.queries)[:, None] + options.offset
    keys = torch.arange(case.keys)[None]
    is_read = torch.ones(case.batch, 1, case.queries, case.keys, dtype=torch.bool)
    if options.causal:
        is_read &= keys <= positions
    if options.window:
        is_read &= keys > positions - options.window
    if case.lengths is not None:
        is_read &= keys < torch.tensor(case.lengths)[:, None, None, None]
    return is_read


def gradient_model(
    case: Case, *, sizes: Mapping[str, Sequence[int | str]] | None = None, **changes: Any
) -> onnx.ModelProto:
    """Return a model of both operators; ``sizes`` replaces shapes, ``changes`` attributes."""
    value, kind = helper.make_tensor_value_info, _TYPES[case.type]
    inputs = [value(n, kind, (sizes or {}).get(n, s)) for n, s in shapes(case).items()]
    options = ["bias" if case.bias is not None else ""]
    for name, array in integers(case).items():
        if array is not None:
            inputs.append(value(name, TensorProto.INT64, array.shape))
        options.append("" if array is None else name)
    attributes = {**case.attributes(), **changes}
    gradients = ["dq", "dk", "dv", *(["dbias"] if case.bias is not None else [])]
    nodes = [
        helper.make_node(kind, read, results, domain="tensoropt", name=kind, **attributes)
        for kind, read, results in (
            ("Attention", ["q", "k", "v", *options], ["y", "lse"]),
            ("AttentionGradient", ["dy", "q", "k", "v", "y", "lse", *options], gradients),
        )
    ]
    outputs = [value(n, kind, None) for n in ("y", *gradients)]
    outputs.append(value("lse", TensorProto.FLOAT, None))
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("tensoropt", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return the array of a tensor, of the type that ONNX Runtime takes."""
    import ml_dtypes

    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def arrays_of(case: Case, tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of all inputs that a model of a case may have."""
    arrays = {name: array_of(tensor) for name, tensor in tensors.items()}
    return arrays | {name: array for name, array in integers(case).items() if array is not None}


def integers(case: Case) -> dict[str, np.ndarray[Any, Any] | None]:
    """Return the operands after the bias, ``None`` for those that are omitted."""
    rows, keys = seeds(case) if case.ratio else (None, None)
    lengths, offset = case.lengths, case.options.offset
    return {
        "lengths": None if lengths is None else np.array(lengths, np.int64),
        "offset": np.array([offset], np.int64) if offset else None,
        "row_seeds": rows,
        "key_seeds": keys,
    }

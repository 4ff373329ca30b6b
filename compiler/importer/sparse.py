"""Sparse tensors become dense: ONNX Runtime makes them so too before it runs anything."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tensoropt.compiler.support.errors import UserError

__all__ = ["densify"]

_MOST_BYTES = 1 << 31  # what a protobuf message can hold


def densify(path: Path, graph: onnx.GraphProto) -> None:
    """Make the sparse initializers of ``graph``, and what its Constant nodes hold, dense tensors.

    Raises :class:`UserError` for one that does not fit together, or is too large to be dense.
    """
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(path, sparse, f"initializer '{sparse.values.name}'"))
    del graph.sparse_initializer[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.SPARSE_TENSOR and node.op_type == "Constant":
                where = f"node '{node.name}' (Constant): attribute '{attribute.name}'"
                tensor = _dense(path, attribute.sparse_tensor, where)
                attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def _dense(path: Path, sparse: onnx.SparseTensorProto, where: str) -> onnx.TensorProto:
    """Return the tensor of ``sparse``; its indices are flat, or one row of them per value."""
    try:
        values, indices = (
            numpy_helper.to_array(sparse.values),
            numpy_helper.to_array(sparse.indices),
        )
        if (
            min(sparse.dims, default=0) < 0
            or math.prod(sparse.dims) * values.itemsize > _MOST_BYTES
        ):
            raise ValueError(f"dimensions {list(sparse.dims)}")
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
        if indices.size and (flat.min() < 0 or len(flat) != len(values)):
            raise ValueError(f"indices {indices.tolist()}")
        dense.reshape(-1)[flat] = values
    except (ValueError, LookupError, TypeError) as error:
        text = " ".join(str(error).split())
        raise UserError(f"{path}: {where} is no sparse tensor that can be dense: {text}") from None
    return numpy_helper.from_array(dense, sparse.values.name)

"""Conversion of sparse tensors to dense, as ONNX Runtime does at load time."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tensoropt.compiler.importer.storage import Folder, fetch
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.elements import element_of
from tensoropt.runtime.support.files import PROTOBUF_BYTES

__all__ = ["densify"]


def densify(path: Path, graph: onnx.GraphProto) -> None:
    """Convert the sparse initializers and Constant values of ``graph`` to dense tensors.

    Raises :class:`UserError` for an inconsistent tensor, or one too large to be dense.
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
    """Return ``sparse`` as a dense tensor; its indices are flat, or a row per value."""
    try:
        for part in (sparse.values, sparse.indices):
            if element_of(part.data_type) is None:
                raise ValueError(f"element type {part.data_type}")
            fetch(Folder(path), part)
        values, indices = (
            numpy_helper.to_array(sparse.values),
            numpy_helper.to_array(sparse.indices),
        )
        if (
            min(sparse.dims, default=0) < 0
            or math.prod(sparse.dims) * values.itemsize > PROTOBUF_BYTES
        ):
            raise ValueError(f"dimensions {list(sparse.dims)}")
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
        if indices.size and (flat.min() < 0 or len(flat) != len(values)):
            raise ValueError(f"indices {indices.tolist()}")
        dense.reshape(-1)[flat] = values
    except (ValueError, LookupError, TypeError) as error:
        text = " ".join(str(error).split())
        raise UserError(f"{path}: {where} cannot be converted to dense: {text}") from None
    return numpy_helper.from_array(dense, sparse.values.name)

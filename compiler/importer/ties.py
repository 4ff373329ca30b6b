"""Tied weights that a file stores twice, as a tensor and as its transpose.

An exporter that folds constants stores two tensors for a weight that an embedding and the last
layer share. They are merged here if the second is read only by products, which can read either
form. This is not done for training, which could not keep them tied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

from tensoropt.compiler.importer.model_file import Model
from tensoropt.compiler.importer.storage import Folder, StoredTensor, locate
from tensoropt.compiler.protos.subgraphs import Scope, subgraphs

__all__ = ["Ties", "find_ties"]

Key = tuple[Scope, str]

_PART = 0.01  # of all parameter bytes: smaller copies are not worth a layout shared by two uses
_SAMPLES = 8  # along each dimension
_BLOCK_BYTES = 4 << 20


class Ties(NamedTuple):
    """Parameters that are transposes of others, mapped to their originals.

    ``are_unknown``: a parameter was not compared, as a file is missing.
    """

    originals: dict[Key, Key]
    are_unknown: bool = False


def find_ties(model: Model, folder: Folder, used: list[Key]) -> Ties:
    """Return the parameters in ``used`` that are transposes of others.

    A copy must be in the main graph and read only by products. A few elements of each pair of
    matrices with matching shapes are compared, and all elements in blocks if these agree. A matrix
    with all elements equal is never a copy.
    """
    matrices = dict(_matrices(model, folder, used))
    products = _read_by_products(model.graph)
    by_shape: dict[tuple[object, ...], list[Key]] = defaultdict(list)
    for key, value in matrices.items():
        by_shape[value.element, value.shape].append(key)
    found: dict[Key, Key] = {}
    are_unknown = False
    for key, value in matrices.items():
        others = by_shape[value.element, value.shape[::-1]] if key[1] in products else []
        first = [o for o in others if o != key and o not in found and key not in found.values()]
        present = [o for o in first if not (matrices[o].is_missing or value.is_missing)]
        original = next((o for o in present if _is_transposed(matrices[o], value)), None)
        if original is not None:
            found[key] = original
        else:
            are_unknown |= len(present) < len(first)
    return Ties(found, are_unknown)


def _matrices(model: Model, folder: Folder, used: list[Key]) -> Iterator[tuple[Key, StoredTensor]]:
    """Yield the large floating point matrices that are stored in a file."""
    stored = {key: locate(folder, model.parameters[key].tensor) for key in used if not key[0]}
    least = _PART * sum(entry.nbytes for entry in stored.values())
    for key, entry in stored.items():
        is_large = entry.path is not None and entry.nbytes > least
        if is_large and len(entry.shape) == 2 and entry.element.is_float:
            yield key, entry


def _read_by_products(graph: onnx.GraphProto) -> set[str]:
    """Return the names that are read only as factors of products in the main graph."""
    factors, others = set[str](), {output.name for output in graph.output}
    for inner, scope in subgraphs(graph):
        for node in inner.node:
            is_product = not scope and not node.domain and node.op_type in ("MatMul", "Gemm")
            count = 2 if is_product else 0
            factors.update(node.input[:count])
            others.update(node.input[count:])
        others.update(output.name for output in inner.output)
    return factors - others


def _is_transposed(a: StoredTensor, b: StoredTensor) -> bool:
    """Return whether ``b`` is ``a`` transposed, bit by bit, and its elements are not all equal.

    False if a file cannot be read: writing the plan will report the error.
    """
    rows, columns = (np.linspace(0, size - 1, _SAMPLES).astype(int) for size in a.shape)
    try:
        sample, transposed = _view(a)[np.ix_(rows, columns)], _view(b)[np.ix_(columns, rows)]
        if not np.array_equal(sample, transposed.T) or (sample == sample[0, 0]).all():
            return False
        step = max(1, _BLOCK_BYTES * a.shape[0] // a.nbytes)
        blocks = (slice(start, start + step) for start in range(0, a.shape[0], step))
        # A view per block: pages stay resident with their view, and would add up to the whole file.
        return all(np.array_equal(_view(a)[at], _view(b)[:, at].T) for at in blocks)
    except OSError:
        return False


def _view(stored: StoredTensor) -> npt.NDArray[Any]:
    """Return the bits of a tensor as a memory map of its file."""
    kind = np.dtype(f"<u{stored.element.bits // 8}")
    with stored.open() as file:
        return np.memmap(file, kind, "r", stored.offset, stored.shape)

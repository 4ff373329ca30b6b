"""Weights that the file holds twice, as they are and transposed.

An exporter that folds constants makes two tensors of the one that an embedding and the last layer
share. They are one again here, if all that the second is for are products, which read it either
way. Not for training, which could not know that they are to stay one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from tensoropt.compiler.importer.model_file import Model
from tensoropt.compiler.importer.stored import Folder, Stored, locate
from tensoropt.compiler.protos.subgraphs import Scope, subgraphs

__all__ = ["transposed_copies"]

Key = tuple[Scope, str]

_PART = 0.01  # of the bytes of all parameters: less is not worth one layout for two uses
_SAMPLES = 8  # along each dimension
_BLOCK_BYTES = 4 << 20
_FLOATS = frozenset(("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"))


def transposed_copies(model: Model, folder: Folder, used: list[Key]) -> dict[Key, Key]:
    """Return which parameters of the main graph are others transposed, by key, each of ``used``.

    Only what is read by products alone is such a copy. Compares a few elements of each pair of
    matrices of fitting shapes, and all of those that agree, in pieces; a matrix of one number is
    no copy of anything.
    """
    matrices = dict(_matrices(model, folder, used))
    products = _read_by_products(model.graph)
    by_shape: dict[tuple[object, ...], list[Key]] = defaultdict(list)
    for key, value in matrices.items():
        by_shape[value.element, value.shape].append(key)
    found: dict[Key, Key] = {}
    for key, value in matrices.items():
        others = by_shape[value.element, value.shape[::-1]] if key[1] in products else []
        first = (o for o in others if o != key and o not in found and key not in found.values())
        original = next((o for o in first if _is_transposed(matrices[o], value)), None)
        if original is not None:
            found[key] = original
    return found


def _matrices(model: Model, folder: Folder, used: list[Key]) -> Iterator[tuple[Key, Stored]]:
    """Yield the large matrices of floating point numbers that lie in a file."""
    stored = {key: locate(folder, model.parameters[key].tensor) for key in used if not key[0]}
    least = _PART * sum(entry.nbytes for entry in stored.values())
    for key, entry in stored.items():
        is_large = entry.path is not None and entry.nbytes > least
        if is_large and len(entry.shape) == 2 and entry.element.name in _FLOATS:
            yield key, entry


def _read_by_products(graph: onnx.GraphProto) -> set[str]:
    """Return the names that are read as a factor of products of the main graph, and not else."""
    factors, others = set[str](), {output.name for output in graph.output}
    for inner, scope in subgraphs(graph):
        for node in inner.node:
            is_product = not scope and not node.domain and node.op_type in ("MatMul", "Gemm")
            count = 2 if is_product else 0
            factors.update(node.input[:count])
            others.update(node.input[count:])
        others.update(output.name for output in inner.output)
    return factors - others


def _is_transposed(one: Stored, other: Stored) -> bool:
    """Say whether ``other`` is ``one`` transposed, to the last bit, and not all the same number.

    Not where a file cannot be read: writing the plan will say so.
    """
    try:
        return _is_equal(one, other)
    except OSError:
        return False


def _is_equal(one: Stored, other: Stored) -> bool:
    rows, columns = (np.linspace(0, size - 1, _SAMPLES).astype(int) for size in one.shape)
    here, there = _view(one)[np.ix_(rows, columns)], _view(other)[np.ix_(columns, rows)]
    if not np.array_equal(here, there.T) or (here == here[0, 0]).all():
        return False
    step = max(1, _BLOCK_BYTES * one.shape[0] // one.nbytes)
    blocks = (slice(start, start + step) for start in range(0, one.shape[0], step))
    # A view each: pages that were read stay with the view, and would add up to the whole.
    return all(np.array_equal(_view(one)[at], _view(other)[:, at].T) for at in blocks)


def _view(stored: Stored) -> npt.NDArray[Any]:
    """Return the bits of a tensor where they lie in its file."""
    kind = np.dtype(f"<u{stored.element.bits // 8}")
    assert stored.path is not None
    return np.memmap(stored.path, kind, "r", stored.offset, stored.shape)

"""Weights that two graphs of a rank have in common, so that a second session need not copy them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tensoropt.runtime.device.provider import HostArray
from tensoropt.runtime.support.dtypes import Array, dtype_of_code

__all__ = ["common_weights"]


def common_weights(graph: Path, other: Path) -> dict[str, HostArray]:
    """Return the weights of ``graph`` that ``other`` has with the same name and bytes, by name.

    The arrays map the other graph's file, so that all processes share its page cache.
    """
    own, others = dict(_weights(graph)), dict(_weights(other))
    return {
        name: HostArray(others[name])
        for name in own.keys() & others.keys()
        if _is_same(own[name], others[name])
    }


def _is_same(one: Array, other: Array) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return np.array_equal(one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8))


def _weights(graph: Path) -> Iterator[tuple[str, Array]]:
    """Yield a graph's external weights, by name, as memory maps."""
    import onnx

    model = onnx.load(graph, load_external_data=False)
    mapped: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        if tensor.external_data:
            facts = {entry.key: entry.value for entry in tensor.external_data}
            location, start = facts["location"], int(facts.get("offset", 0))
            if location not in mapped:
                mapped[location] = np.memmap(graph.parent / location, np.uint8, "r")
            dtype = dtype_of_code(tensor.data_type)
            size = dtype.itemsize * math.prod(tensor.dims)
            raw: Array = np.asarray(mapped[location][start : start + size])
            yield tensor.name, raw.view(dtype).reshape(tuple(tensor.dims))

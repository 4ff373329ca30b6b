"""Checks that all elements of arrays are finite, on a rank's device and on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensoropt.runtime.device.provider import PlacedArray, Provider
from tensoropt.runtime.session.session import made_session
from tensoropt.runtime.support.dtypes import Array

__all__ = ["FiniteCheck", "all_finite"]

_CHUNK = 1 << 20  # elements checked together
_OPSET = 20
_WIDE = 4  # bytes of an element type in which sums of gradients do not overflow


class FiniteCheck:
    """A check that every element of some arrays is finite, without copying them to the host.

    A graph sums each array (or averages it, for narrow types) and then adds the sums: NaN and
    infinity propagate. It reads each element once and writes one number per array. If a sum is not
    finite, the arrays are checked again on the host, one at a time, as finite elements may
    overflow.
    """

    def __init__(self, arrays: Sequence[PlacedArray], provider: Provider) -> None:
        self._arrays = [array for array in arrays if array.nbytes]
        self._sum = provider.zeros((), np.dtype(np.float32))
        if self._arrays:
            self._session = made_session(_graph(self._arrays), provider)
            self._session.write("sum", self._sum)
            for number, array in enumerate(self._arrays):
                self._session.read(f"array{number}", array)

    def __call__(self) -> bool:
        if not self._arrays:
            return True
        self._session.run()
        return bool(np.isfinite(self._sum.get())) or all(
            all_finite(array.get()) for array in self._arrays
        )


def _graph(arrays: Sequence[PlacedArray]) -> bytes:
    """Return an ONNX model with an output ``sum`` that is finite only if all its inputs are."""
    from onnx import TensorProto, helper

    inputs, nodes = [], []
    for number, array in enumerate(arrays):
        name, narrow = f"array{number}", array.dtype.itemsize < _WIDE
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        reduce = "ReduceMean" if narrow else "ReduceSum"
        nodes.append(helper.make_node(reduce, [name], [f"own{number}"], keepdims=0))
        cast = helper.make_node("Cast", [f"own{number}"], [f"sum{number}"], to=TensorProto.FLOAT)
        nodes.append(cast)
    sums = [f"sum{number}" for number in range(len(arrays))]
    nodes.append(helper.make_node("Sum", sums, ["sum"]))
    outputs = [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [])]
    graph = helper.make_graph(nodes, "finite", inputs, outputs)
    imports = [helper.make_opsetid("", _OPSET)]
    model: Any = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


def all_finite(array: Array) -> bool:
    """Return whether all elements of an array on the host are finite; copies only chunks."""
    if array.dtype.kind not in "fV":
        return True
    flat = array.reshape(-1)
    pieces = (flat[i : i + _CHUNK] for i in range(0, flat.size, _CHUNK))
    with np.errstate(invalid="ignore"):  # numpy warns when it converts a signalling NaN
        return all(bool(np.isfinite(piece.astype(np.float64)).all()) for piece in pieces)

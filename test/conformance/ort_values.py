"""Tensors of element types that ONNX Runtime's Python interface has no arrays for.

bfloat16, the float8 family, and the types below a byte, which lie packed as ONNX stores them.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tensoropt.dialects.elements import ELEMENTS, Element, element_of, element_of_array

__all__ = ["has_small_types", "run_small"]

# As ONNX Runtime spells them: tensor(float8e4m3fn).
_SMALL = {
    e.name.lower(): e
    for e in ELEMENTS
    if e.name.startswith(("BFLOAT", "FLOAT8")) or e.bits in (2, 4, 6)
}


def has_small_types(session: Any) -> bool:
    """Say whether a session takes or gives tensors that numpy alone cannot hold."""
    ends = (*session.get_inputs(), *session.get_outputs())
    return any(_small(end.type) for end in ends)


def _small(kind: str) -> Element | None:
    match = re.fullmatch(r"tensor\((\w+)\)", kind)
    return _SMALL.get(match[1]) if match else None


def run_small(session: Any, inputs: dict[str, Any]) -> list[Any]:
    """Return the outputs of one run, every tensor passed as bytes."""
    feeds = {name: _to_value(array) for name, array in inputs.items()}
    names = [output.name for output in session.get_outputs()]
    return [_from_value(value) for value in session.run_with_ort_values(names, feeds)]


def _to_value(array: Any) -> Any:
    from onnxruntime import OrtValue

    element = element_of_array(array)
    if element.name.lower() not in _SMALL:
        return OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
    value = OrtValue.ortvalue_from_shape_and_type(list(array.shape), element.number)
    raw = numpy_helper.from_array(array).raw_data
    ctypes.memmove(value.data_ptr(), raw, len(raw))
    return value


def _from_value(value: Any) -> Any:
    element = element_of(value.element_type())
    if element is None or element.name.lower() not in _SMALL:
        return value.numpy().copy()
    shape = value.shape()
    size = -(-int(np.prod(shape)) * element.bits // 8)
    raw = ctypes.string_at(value.data_ptr(), size)
    return numpy_helper.to_array(
        onnx.TensorProto(data_type=element.number, dims=shape, raw_data=raw)
    )

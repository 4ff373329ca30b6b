"""Element types, their names in ONNX, MLIR and numpy, and dense literals."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16, float8 and int4 with numpy)
import numpy as np
import numpy.typing as npt

from tensoropt.compiler.layout.sizes import end_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.sizes import sizes_of_type

__all__ = [
    "ELEMENTS",
    "Array",
    "Element",
    "dense_to_array",
    "element_of",
    "element_of_array",
    "element_text",
    "items_text",
    "to_dense",
    "type_bytes",
]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Element:
    """One element type: ONNX's name and number, MLIR's text, numpy's name, and its width."""

    name: str
    number: int
    mlir: str
    numpy: str
    bits: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.numpy)

    @property
    def is_complex(self) -> bool:
        return self.name.startswith("COMPLEX")

    @property
    def is_integer(self) -> bool:
        """True for integers and BOOL."""
        return self.name == "BOOL" or self.name.startswith(("INT", "UINT"))

    @property
    def is_float(self) -> bool:
        """True for floating point numbers of at least 16 bits."""
        return self.name in ("FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE")

    def type(self) -> ir.Type:
        """Return the MLIR type in the current context."""
        return ir.Type.parse(self.mlir)


# The numbers come from TensorProto.DataType (onnx.proto).
ELEMENTS = tuple(
    Element(*row)
    for row in (
        ("FLOAT", 1, "f32", "float32", 32),
        ("UINT8", 2, "ui8", "uint8", 8),
        ("INT8", 3, "i8", "int8", 8),
        ("UINT16", 4, "ui16", "uint16", 16),
        ("INT16", 5, "i16", "int16", 16),
        ("INT32", 6, "i32", "int32", 32),
        ("INT64", 7, "i64", "int64", 64),
        ("STRING", 8, "!onnx.String", "object", 0),
        ("BOOL", 9, "i1", "bool", 8),
        ("FLOAT16", 10, "f16", "float16", 16),
        ("DOUBLE", 11, "f64", "float64", 64),
        ("UINT32", 12, "ui32", "uint32", 32),
        ("UINT64", 13, "ui64", "uint64", 64),
        ("COMPLEX64", 14, "complex<f32>", "complex64", 64),
        ("COMPLEX128", 15, "complex<f64>", "complex128", 128),
        ("BFLOAT16", 16, "bf16", "bfloat16", 16),
        ("FLOAT8E4M3FN", 17, "f8E4M3FN", "float8_e4m3fn", 8),
        ("FLOAT8E4M3FNUZ", 18, "f8E4M3FNUZ", "float8_e4m3fnuz", 8),
        ("FLOAT8E5M2", 19, "f8E5M2", "float8_e5m2", 8),
        ("FLOAT8E5M2FNUZ", 20, "f8E5M2FNUZ", "float8_e5m2fnuz", 8),
        ("UINT4", 21, "ui4", "uint4", 4),
        ("INT4", 22, "i4", "int4", 4),
        ("FLOAT4E2M1", 23, "f4E2M1FN", "float4_e2m1fn", 4),
        ("FLOAT8E8M0", 24, "f8E8M0FNU", "float8_e8m0fnu", 8),
        ("UINT2", 25, "ui2", "uint2", 2),
        ("INT2", 26, "i2", "int2", 2),
        ("FLOAT6E2M3", 27, "f6E2M3FN", "float6_e2m3fn", 6),
        ("FLOAT6E3M2", 28, "f6E3M2FN", "float6_e3m2fn", 6),
    )
)

_BY_NUMBER = {element.number: element for element in ELEMENTS}
_BY_MLIR = {element.mlir: element for element in ELEMENTS}
_BY_NUMPY = {element.numpy: element for element in ELEMENTS}

# numpy types that the bindings convert directly.
_PLAIN = re.compile(r"u?int(8|16|32|64)|float(16|32|64)|bool")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[-+\w.]+')


_FLOATS: dict[type[ir.Type], str] = {ir.F32Type: "f32", ir.F16Type: "f16", ir.BF16Type: "bf16"}


def element_text(kind: ir.Type) -> str:
    """Return MLIR's text of the element type of a ranked tensor type.

    To print a type takes five microseconds, which common types are spared.
    """
    element = ir.RankedTensorType(kind).element_type
    return _FLOATS.get(type(element)) or str(element)


def element_of(key: int | str) -> Element | None:
    """Return the element type with an ONNX number or an MLIR text, or ``None`` if unknown."""
    return _BY_NUMBER.get(key) if isinstance(key, int) else _BY_MLIR.get(key)


def element_of_array(array: Array) -> Element:
    """Return the element type of a numpy array (``object`` and text are STRING)."""
    return _BY_NUMPY["object" if array.dtype.kind in "OSU" else array.dtype.name]


def items_text(name: str) -> str:
    """Return the elements of the type with numpy's ``name`` in words: ``strings``, ``int64``."""
    return {"object": "strings", "bool": "booleans"}.get(name, name)


def type_bytes(type_: ir.Type) -> int:
    """Return the size of a tensor in bytes, 0 for other types.

    An open dimension counts as the end of its range, or as 1 without a range. A string counts as a
    handle of 8 bytes, as in ONNX Runtime; types below a byte count as packed.
    """
    if not isinstance(type_, ir.RankedTensorType):
        return 0
    element = _BY_MLIR[element_text(type_)]
    return -(-end_of(sizes_of_type(type_)) * (element.bits or 64) // 8)


def to_dense(array: Array) -> ir.Attribute:
    """Return the `dense<...>` literal of ``array`` in the current context.

    Raises ``ValueError`` for complex numbers, because the bindings cannot read such literals back.
    """
    element = element_of_array(array)
    if element.is_complex:
        raise ValueError("literals of complex numbers are not supported")
    if element.name == "STRING":  # parsed from text: the bindings have no constructor for it
        texts = [str(ir.StringAttr.get(item)) for item in array.reshape(-1).tolist()]
        kind = "tensor<" + "".join(f"{size}x" for size in array.shape) + element.mlir + ">"
        return ir.Attribute.parse(f"dense<{_nested(texts, array.shape)}> : {kind}")
    if array.dtype.name in ("int4", "int2"):
        array = array.astype(np.int8)
    elif not _PLAIN.fullmatch(array.dtype.name):
        array = array.view(np.dtype(f"uint{8 * array.dtype.itemsize}"))
    return ir.DenseElementsAttr.get(
        np.ascontiguousarray(array), type=element.type(), shape=list(array.shape)
    )


def _nested(texts: list[str], shape: tuple[int, ...]) -> str:
    if not texts:
        return ""
    if not shape:
        return texts[0]
    step = len(texts) // shape[0]
    rows = (texts[start : start + step] for start in range(0, len(texts), step))
    return "[" + ", ".join(_nested(row, shape[1:]) for row in rows) + "]"


def dense_to_array(attribute: ir.Attribute) -> Array:
    """Return the value of a `dense<...>` literal of any element type."""
    with attribute.context:  # types and texts inside the literal are parsed in it
        if isinstance(attribute, ir.DenseElementsAttr):
            kind = ir.RankedTensorType(attribute.type)
        else:  # dense strings have no class in the bindings
            kind = ir.RankedTensorType(ir.Type.parse(str(attribute).rpartition("> : ")[2]))
        shape, element = tuple(kind.shape), _BY_MLIR[str(kind.element_type)]
        if _PLAIN.fullmatch(element.numpy):
            return np.array(attribute).reshape(shape)
        return _parse_dense(attribute, shape, element)


def _parse_dense(attribute: ir.Attribute, shape: tuple[int, ...], element: Element) -> Array:
    """Parse the elements from the literal's text: the bindings cannot convert these types."""
    text = str(attribute).rpartition("> : ")[0].removeprefix("dense<")
    count = math.prod(shape)
    if text.startswith('"0x') and element.name != "STRING":
        raw = np.frombuffer(bytes.fromhex(text[3:-1]), dtype=np.uint8)
        if element.name in ("INT4", "INT2"):  # stored as signed bytes; ml_dtypes keeps the low bits
            return raw.view(np.int8).astype(element.dtype).reshape(shape)
        return raw.view(element.dtype).reshape(shape).copy()
    values = [_parse_token(token, element) for token in _TOKEN.findall(text)]
    if len(values) == 1:
        values *= count
    return np.array(values, dtype=element.dtype).reshape(shape)


def _parse_token(token: str, element: Element) -> object:
    if token.startswith('"'):
        return ir.StringAttr(ir.Attribute.parse(token)).value_bytes
    if not token.startswith("0x"):
        return float(token) if "." in token else int(token)
    bits = np.array(int(token, 16), f"uint{8 * element.dtype.itemsize}")
    return bits.view(element.dtype)[()]

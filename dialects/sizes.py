"""The sizes of tensor types, with the ranges of open dimensions in the encoding.

`tensor<?x64xf32, #topt.sizes<["batch mean=4 end=8 step=2", ""]>>` has one text per dimension, empty
for a fixed dimension or one without a range.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.layout.sizes import Open, Size, Sizes, read_open
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.dialect import SizesAttr

__all__ = ["sizes_of_type", "tensor_type"]


def tensor_type(shape: Sequence[Size], element: ir.Type) -> ir.RankedTensorType:
    """Return ``tensor<shape x element>``; ``None`` and :class:`Open` are symbolic dimensions."""
    dynamic = ir.ShapedType.get_dynamic_size()
    sizes = [size if isinstance(size, int) else dynamic for size in shape]
    if not any(isinstance(size, Open) for size in shape):
        return ir.RankedTensorType.get(sizes, element)
    texts = [str(size) if isinstance(size, Open) else "" for size in shape]
    with element.context:
        encoding = SizesAttr.get(ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts]))
    return ir.RankedTensorType.get(sizes, element, encoding)


def sizes_of_type(kind: ir.RankedTensorType) -> Sizes:
    """Return the size of each dimension; raises UserError if the encoding does not parse."""
    dynamic = ir.ShapedType.get_dynamic_size()
    shape: list[Size] = [None if size == dynamic else int(size) for size in kind.shape]
    if kind.encoding is None or None not in shape:
        return tuple(shape)
    texts = _texts(kind)
    sizes = [read_open(t) if n is None and t else n for n, t in zip(shape, texts, strict=True)]
    if any(text and size is None for text, size in zip(texts, sizes, strict=True)):
        raise _wrong(kind)
    return tuple(sizes)


def _texts(kind: ir.RankedTensorType) -> list[str]:
    encoding: object = kind.encoding
    texts = list(ir.ArrayAttr(encoding.sizes)) if isinstance(encoding, SizesAttr) else []
    if len(texts) != kind.rank or not all(isinstance(text, ir.StringAttr) for text in texts):
        raise _wrong(kind)
    return [str(ir.StringAttr(text).value) for text in texts]


def _wrong(kind: ir.Type) -> UserError:
    return UserError(
        "a tensor type has a wrong encoding, expected #topt.sizes with a text such as "
        f"'batch mean=4 end=8 step=2' per dimension, got: {kind}"
    )

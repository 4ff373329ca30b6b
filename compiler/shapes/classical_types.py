"""Result types of `ai.onnx.ml` operators that ONNX's own inference does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import onnx
from onnx import TensorProto

from tensoropt.dialects.onnx import CLASSICAL

__all__ = ["classical_types"]

Types = dict[str, onnx.TypeProto]


def classical_types(graph: onnx.GraphProto, known: Mapping[str, onnx.TypeProto]) -> Types:
    """Return the types of results that are missing in ``known``, which maps names to shaped types.

    The types are those that ONNX Runtime's kernels return. Linear in the nodes.
    """
    found: Types = {}
    for node in graph.node:
        maker = _MAKERS.get(node.op_type) if node.domain == CLASSICAL else None
        kinds = [found.get(name) or known.get(name) for name in node.input]
        ranked = [kind for kind in kinds if kind is not None and kind.tensor_type.shape.dim]
        if maker is None or len(ranked) < len(kinds):
            continue
        attributes = {own.name: onnx.helper.get_attribute_value(own) for own in node.attribute}
        pairs = zip(node.output, maker(attributes, ranked[0]), strict=False)
        found.update((name, made) for name, made in pairs if name and name not in known)
    return found


Maker = Callable[[dict[str, Any], onnx.TypeProto], Iterator[onnx.TypeProto]]


def _same_type(attributes: dict[str, Any], x: onnx.TypeProto) -> Iterator[onnx.TypeProto]:
    yield x


def _floats(attributes: dict[str, Any], x: onnx.TypeProto) -> Iterator[onnx.TypeProto]:
    yield _tensor(TensorProto.FLOAT, list(x.tensor_type.shape.dim))


def _classes(attributes: dict[str, Any], x: onnx.TypeProto) -> Iterator[onnx.TypeProto]:
    """Yield the type of the first LabelEncoder's result: strings become numbers or vice versa."""
    of_text = x.tensor_type.elem_type == TensorProto.STRING
    made = TensorProto.INT64 if of_text else TensorProto.STRING
    yield _tensor(made, list(x.tensor_type.shape.dim))


def _columns(count: Callable[[dict[str, Any]], int]) -> Maker:
    """Return a function that yields a table with a row per sample and ``count`` columns."""

    def make(attributes: dict[str, Any], x: onnx.TypeProto) -> Iterator[onnx.TypeProto]:
        yield _tensor(TensorProto.FLOAT, [_samples(x), _size(count(attributes))])

    return make


def _vector_classes(attributes: dict[str, Any], x: onnx.TypeProto) -> Iterator[onnx.TypeProto]:
    texts = attributes.get("classlabels_strings", ())
    labels = TensorProto.STRING if texts else TensorProto.INT64
    count = len(texts or attributes.get("classlabels_ints", ()))
    if count > 2 and attributes.get("support_vectors") and not attributes.get("prob_a"):
        count = count * (count - 1) // 2  # a score for each pair of classes
    yield _tensor(labels, [_samples(x)])
    yield _tensor(TensorProto.FLOAT, [_samples(x), _size(max(count, 2))])


def _samples(x: onnx.TypeProto) -> onnx.TensorShapeProto.Dimension:
    """Return the number of rows; a vector is one row."""
    dims = x.tensor_type.shape.dim
    return dims[0] if len(dims) > 1 else _size(1)


def _size(count: int) -> onnx.TensorShapeProto.Dimension:
    return onnx.TensorShapeProto.Dimension(dim_value=count)


def _tensor(element: int, dims: list[onnx.TensorShapeProto.Dimension]) -> onnx.TypeProto:
    made = onnx.TypeProto()
    made.tensor_type.elem_type = element
    made.tensor_type.shape.dim.extend(dims)
    return made


_MAKERS: dict[str, Maker] = {
    "Imputer": _same_type,
    "Scaler": _floats,
    "Normalizer": _floats,
    "LabelEncoder": _classes,
    "FeatureVectorizer": _columns(lambda attributes: sum(attributes.get("inputdimensions", ()))),
    "LinearRegressor": _columns(lambda attributes: attributes.get("targets", 1)),
    "SVMRegressor": _columns(lambda attributes: 1),
    "SVMClassifier": _vector_classes,
    "TreeEnsembleRegressor": _columns(lambda attributes: attributes.get("n_targets", 1)),
}

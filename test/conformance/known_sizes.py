"""The types that the compiler infers at known sizes, next to what ONNX Runtime's kernels return.

Each test of the standard is taken as it is, with its operands after the first as constants, and a
few tests per operator in forms that the standard lacks: without an optional operand or attribute,
at other sizes, and in each older version of the operator. What ONNX Runtime returns without its
optimiser is the truth; forms that it refuses count for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.defs
from node_tests import NodeTest, run, session_of
from onnx import numpy_helper

from tensoropt.compiler.shapes.inference import infer_types, value_types
from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.elements import element_of_array

__all__ = ["DEPENDENT", "differences", "forms", "ill_inferred"]

_DEPENDENT = """
    BlackmanWindow Compress ConstantOfShape HammingWindow HannWindow Loop MelWeightMatrix
    NonMaxSuppression NonZero Range StringNormalizer StringSplit Unique
"""
DEPENDENT = frozenset(_DEPENDENT.split())
"""Operators with sizes that depend on values of the first operand, or on floating-point ones."""

_VARIED = 3  # tests of an operator that are varied
_SMALL = 64  # elements of an operand that models hold as a constant
_OLDEST = 9  # opset; models before it are not shaped like newer ones
_CASTS = ("Cast", "CastLike")  # ONNX Runtime takes types that their older versions lack

Form = tuple[str, onnx.ModelProto, dict[str, Any]]
"""What is different from the standard's own form, a model, and its inputs."""


def differences(tests: Iterable[NodeTest]) -> Iterator[str]:
    """Yield a line for each form of a test whose types differ from those of ONNX Runtime."""
    count: Counter[str] = Counter()
    for test in tests:
        operator = test.operators[0]
        count[operator] += 1
        for form, model, inputs in forms(test, varied=count[operator] <= _VARIED):
            if (text := ill_inferred(model, inputs)) is not None:
                yield f"{test.name} {form}: {text}"


def ill_inferred(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> str | None:
    """Return how inferred types differ from ONNX Runtime's values, None if they do not.

    None as well if ONNX Runtime refuses the model, or ends in it.
    """
    try:
        values = native.call(_values, model.SerializeToString(), dict(inputs), seconds=2)
    except (native.NativeError, native.NativeFailureError):
        return None
    try:
        types = value_types(infer_types(model).graph)
    except UserError as error:
        return f"refused: {error}"
    single = len(model.graph.node) == 1 and model.graph.node[0].op_type not in DEPENDENT
    is_closed = single and len(inputs) == 1
    texts = (
        _unlike(name, *value, types.get(name), is_closed=is_closed)
        for name, value in values.items()
    )
    return next((text for text in texts if text), None)


def _values(model: bytes, inputs: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], int]]:
    """Return the shape and element type of each tensor that a node returns; runs in the child."""
    proto = onnx.ModelProto.FromString(model)
    ends = {value.name for value in proto.graph.output}
    names = [name for node in proto.graph.node for name in node.output if name]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in ends)
    session = session_of(proto.SerializeToString(), optimised=False)
    outputs = [output.name for output in session.get_outputs()]
    found = dict(zip(outputs, run(session, inputs), strict=True))
    arrays = {name: np.asarray(v) for name, v in found.items() if not isinstance(v, list | None)}
    return {name: (array.shape, _number(array)) for name, array in arrays.items()}


def _number(array: Any) -> int:
    text = array.dtype.kind in "OUS"
    return int(onnx.TensorProto.STRING) if text else element_of_array(array).number


def _unlike(
    name: str,
    shape: tuple[int, ...],
    element: int,
    kind: onnx.TypeProto | None,
    *,
    is_closed: bool,
) -> str | None:
    """Return how a type differs from a value; sizes may be open unless ``is_closed``."""
    tensor = onnx.TypeProto.Tensor() if kind is None else kind.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    if not tensor.HasField("shape"):
        return f"'{name}' has no rank, expected {shape}" if is_closed else None
    pairs = zip(dims, shape, strict=False)
    wrong = len(dims) != len(shape) or any(own not in (None, size) for own, size in pairs)
    if wrong or (is_closed and None in dims) or tensor.elem_type != element:
        return f"'{name}' is {dims} of {tensor.elem_type}, expected {shape} of {element}"
    return None


def forms(test: NodeTest, *, varied: bool = False) -> Iterator[Form]:
    """Yield the forms of a test at known sizes."""
    model = onnx.ModelProto.FromString(test.model)
    model.ir_version = max(model.ir_version, 4)  # initializers are no inputs since
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    plain = ("as it is", model, dict(test.inputs))
    has_one_node = len(model.graph.node) == 1 and not model.functions
    rest = _variations(*plain[1:]) if varied and has_one_node else ()
    for name, own, inputs in (plain, *rest):
        _fix_sizes(own, inputs)
        yield name, own, inputs
        constant, left = _with_constants(own, inputs)
        if len(left) < len(inputs):
            yield f"{name}, with constants", constant, left


def _fix_sizes(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> None:
    for value in model.graph.input:
        if isinstance(inputs.get(value.name), np.ndarray):
            shape = onnx.helper.make_tensor_type_proto(
                1, inputs[value.name].shape
            ).tensor_type.shape
            value.type.tensor_type.shape.CopyFrom(shape)


def _copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _with_constants(
    model: onnx.ModelProto, inputs: dict[str, Any]
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model with the small operands after the first as constants, and the other inputs."""
    first = model.graph.node[0].input[:1] if model.graph.node else ()
    small = {
        name: value
        for name, value in inputs.items()
        if name not in first
        and isinstance(value, np.ndarray)
        and value.dtype.kind in "iufb"
        and value.size <= _SMALL
    }
    constant = _copied(model)
    left = [value for value in constant.graph.input if value.name not in small]
    del constant.graph.input[:]
    constant.graph.input.extend(left)
    constant.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in small.items())
    return constant, {name: value for name, value in inputs.items() if name not in small}


def _variations(model: onnx.ModelProto, inputs: dict[str, Any]) -> Iterator[Form]:
    yield from _without_attributes(model, inputs)
    yield from _without_operands(model, inputs)
    yield from _at_other_sizes(model, inputs)
    yield from _in_older_versions(model, inputs)


def _without_attributes(model: onnx.ModelProto, inputs: dict[str, Any]) -> Iterator[Form]:
    for at, attribute in enumerate(model.graph.node[0].attribute):
        own = _copied(model)
        del own.graph.node[0].attribute[at]
        yield f"without {attribute.name}", own, inputs


def _without_operands(model: onnx.ModelProto, inputs: dict[str, Any]) -> Iterator[Form]:
    names = list(model.graph.node[0].input)
    for at, name in enumerate(names):
        own = _copied(model)
        left = [*names[:at], "", *names[at + 1 :]]
        while left and not left[-1]:
            left.pop()
        own.graph.node[0].input[:] = left
        kept = [value for value in own.graph.input if value.name in left]
        del own.graph.input[:]
        own.graph.input.extend(kept)
        yield f"without '{name}'", own, {n: value for n, value in inputs.items() if n in left}


def _at_other_sizes(model: onnx.ModelProto, inputs: dict[str, Any]) -> Iterator[Form]:
    """Yield the model with each size replaced by 0, by 1, and by one more."""
    arrays = [value for value in inputs.values() if isinstance(value, np.ndarray)]
    for size in sorted({size for array in arrays for size in array.shape if size}):
        for other in sorted({0, 1, size + 1} - {size}):
            resized = {name: _resized(value, size, other) for name, value in inputs.items()}
            yield f"with {other} for {size}", _copied(model), resized


def _resized(value: Any, size: int, other: int) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    for axis in (axis for axis, length in enumerate(value.shape) if length == size):
        value = np.take(value, np.arange(other) % size, axis=axis)
    return value


def _in_older_versions(model: onnx.ModelProto, inputs: dict[str, Any]) -> Iterator[Form]:
    node = model.graph.node[0]
    for entry in model.opset_import:
        older = _versions(node.domain, node.op_type) if entry.domain == node.domain else ()
        for version in (v for v in older if v < entry.version and node.op_type not in _CASTS):
            own = _copied(model)
            for each in own.opset_import:
                each.version = version if each.domain == node.domain else each.version
            yield f"in opset {version}", own, inputs


@cache
def _versions(domain: str, op_type: str) -> list[int]:
    every = onnx.defs.get_all_schemas_with_history()
    since = {s.since_version for s in every if (s.domain, s.name) == (domain, op_type)}
    return sorted({max(version, _OLDEST) for version in since})

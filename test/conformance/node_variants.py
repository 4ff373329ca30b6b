"""Forms of a test in which the rules have more to offer: constants, and sizes that divide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from node_tests import NodeTest, run, session_of
from onnx import numpy_helper
from split_model import Model

from tensoropt.compiler.sharding.rule.registry import registered
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["variants"]

_FOUR = Mesh((4,))
_UNREPEATABLE = {"MaxUnpool"}  # its indices are places, no two of which are the same

Variant = tuple[str, NodeTest, Model]
"""What is different from the standard's own form, the test, and its model."""


def variants(test: NodeTest, path: Path) -> Iterator[Variant]:
    """Yield the test as it is, with constants, and, where nothing was split, with other sizes.

    Models are written beside ``path``. Raises what import raises.
    """
    forms = [("", test), *(("constants ", own) for own in _with_constants(test))]
    splits = False
    for name, own in forms:
        model = _model(own, path, name)
        splits = splits or _is_split(model)
        yield name, own, model
    if (
        splits
        or len(test.operators) > 1
        or test.operators[0] not in {*registered()} - _UNREPEATABLE
    ):
        return
    for name, own in forms:
        for number, larger in enumerate(_with_multiples(own)):
            model = _model(larger, path, f"{name}{number}")
            if _is_split(model):
                yield f"{name}rounded up ", larger, model
                break


def _is_repeatable(test: NodeTest) -> bool:
    """Say whether there is a rule to try, and values may be repeated."""
    return len(test.operators) == 1 and test.operators[0] in {*registered()} - _UNREPEATABLE


def _is_split(model: Model) -> bool:
    return any(len(offered) > 1 for offered in model.options(_FOUR))


def _model(test: NodeTest, path: Path, name: str) -> Model:
    target = path.with_name(f"{path.name}.{name.replace(' ', '')}.onnx")
    target.write_bytes(test.model)
    return Model(target)


def _with_constants(test: NodeTest) -> Iterator[NodeTest]:
    """Yield the test with sizes, axes and bounds as constants, if it has any.

    The standard feeds every operand. Models hold whole numbers, truth values and scalars after the
    first operand as constants, and many rules offer more then.
    """
    model = onnx.ModelProto.FromString(test.model)
    first = {node.input[0] for node in model.graph.node if node.input}
    held = {name for name, value in test.inputs.items() if name not in first and _is_small(value)}
    if not held:
        return
    inputs = [value for value in model.graph.input if value.name not in held]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(
        numpy_helper.from_array(test.inputs[name], name) for name in sorted(held)
    )
    left = {name: value for name, value in test.inputs.items() if name not in held}
    yield replace(test, model=model.SerializeToString(), inputs=left)


def _is_small(value: Any) -> bool:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iubf":
        return False
    return value.dtype.kind != "f" or value.size == 1


def _with_multiples(test: NodeTest) -> Iterator[NodeTest]:
    """Yield the test with sizes rounded up to a multiple of 4, as long as that still runs.

    All sizes above 1, then each alone, as attributes may fix some, then those of 1 too. The last
    values are repeated; what stock ONNX Runtime gives is what is wanted then.
    """
    if not all(isinstance(value, np.ndarray) for value in test.inputs.values()):
        return
    odd = {size for value in test.inputs.values() for size in value.shape if size % 4}
    for sizes in (odd - {1}, *({size} for size in sorted(odd - {1})), odd, {1}):
        larger = {name: _rounded_up(value, sizes) for name, value in test.inputs.items()}
        try:
            wanted = run(session_of(_resized(test.model, larger)), larger)
        except Exception:  # sizes that operands or attributes fix, too
            continue
        ends = {**larger, **dict(zip(_outputs(test.model), wanted, strict=True))}
        yield replace(test, model=_resized(test.model, ends), inputs=larger, wanted=wanted)


def _outputs(model: bytes) -> list[str]:
    return [value.name for value in onnx.ModelProto.FromString(model).graph.output]


def _resized(data: bytes, arrays: Mapping[str, Any]) -> bytes:
    """Return a model with the shapes of ``arrays`` at its ends, and no other at its outputs."""
    model = onnx.ModelProto.FromString(data)
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    for value in (*model.graph.input, *model.graph.output):
        if isinstance(arrays.get(value.name), np.ndarray):
            shape = onnx.helper.make_tensor_type_proto(1, arrays[value.name].shape)
            value.type.tensor_type.shape.CopyFrom(shape.tensor_type.shape)
    return model.SerializeToString()


def _rounded_up(array: Any, sizes: set[int]) -> Any:
    wider = [(0, -size % 4 if size in sizes else 0) for size in array.shape]
    return np.pad(array, wider, mode="edge") if array.size and wider else array

"""Evaluation of operations with known operands, in a single ONNX Runtime session.

The session runs in a child process, since an integer division by zero ends its process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.protos.emitter import Emitter
from tensoropt.compiler.protos.types import type_proto
from tensoropt.compiler.support import native
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import NO_VALUE, is_no_value, owner

__all__ = ["evaluate"]

Array = npt.NDArray[np.generic]
Arrays = dict[ir.Value, Array]
Known = Mapping[ir.Value, Array]

_MOST_DEATHS = 8  # child processes lost before the remaining operations are skipped


def evaluate(module: ir.Module, ops: Sequence[ir.Operation], known: Known) -> Arrays:
    """Return the values of all results of ``ops`` (in program order), given the values ``known``.

    An operation is left out if ONNX Runtime refuses it, because of its values or for lack of a
    kernel, or crashes in it; so are its dependents.
    """
    try:
        return _run(module, ops, known)
    except Exception:  # a bad operation must not prevent the evaluation of the others
        return _one_by_one(module, ops, known)


def _one_by_one(module: ir.Module, ops: Sequence[ir.Operation], known: Known) -> Arrays:
    found: Arrays = {}
    deaths = 0
    for op in ops:
        values = {**known, **found}
        if deaths < _MOST_DEATHS and all(v in values or is_no_value(v) for v in op.operands):
            try:
                found.update(_run(module, [op], values))
            except native.NativeFailureError:
                deaths += 1
            except Exception:  # the operation may be on a path that the model never takes
                continue
    return found


def _run(module: ir.Module, ops: Sequence[ir.Operation], known: Known) -> Arrays:
    emitter = Emitter(module)
    _add_operands(emitter, ops, known)
    for op in ops:
        emitter.operation(op)
    results = [value for op in ops for value in op.results if not is_no_value(value)]
    for value in results:
        emitter.graph.output.add(name=emitter.name(value)).type.CopyFrom(type_proto(value.type))
    model = emitter.model().SerializeToString()
    arrays = native.call(_values, model, seconds=native.seconds_for(len(ops)))
    return {value: np.asarray(array) for value, array in zip(results, arrays, strict=True)}


def _values(model: bytes) -> list[Array]:
    """Return the outputs of a model without inputs; runs in the child."""
    return list(native.session(model).run(None, {}))


def _add_operands(emitter: Emitter, ops: Sequence[ir.Operation], known: Known) -> None:
    """Make initializers of the known operands, and empty names of omitted operands."""
    for op in ops:
        for value in op.operands:
            if value in emitter.values:
                continue
            source = owner(value)
            if source is not None and source.name == NO_VALUE:
                emitter.values[value] = ""
            elif value in known:
                emitter.values[value] = emitter.constant("known", known[value])

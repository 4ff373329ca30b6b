"""The values of operations whose operands are known: one ONNX Runtime session for all of them.

It runs in a child process, since a division by zero ends the process that runs it.
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

_MOST_DEATHS = 8  # of the child: each takes a new one


def evaluate(module: ir.Module, ops: Sequence[ir.Operation], known: Known) -> Arrays:
    """Return the values of all results of ``ops`` (in program order), given those ``known``.

    An operation that ONNX Runtime refuses, because of its values or for want of a kernel, or does
    not survive is left out, as are those that depend on it.
    """
    try:
        return _run(module, ops, known)
    except Exception:  # one bad operation must not keep the others from being evaluated
        return _one_by_one(module, ops, known)


def _one_by_one(module: ir.Module, ops: Sequence[ir.Operation], known: Known) -> Arrays:
    found: Arrays = {}
    deaths = 0
    for op in ops:
        have = {**known, **found}
        if deaths < _MOST_DEATHS and all(v in have or is_no_value(v) for v in op.operands):
            try:
                found.update(_run(module, [op], have))
            except native.NativeFailureError:
                deaths += 1
            except Exception:  # a model may take a square root on a path it never takes
                continue
    return found


def _run(module: ir.Module, ops: Sequence[ir.Operation], known: Known) -> Arrays:
    emitter = Emitter(module)
    _operands(emitter, ops, known)
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


def _operands(emitter: Emitter, ops: Sequence[ir.Operation], known: Known) -> None:
    """Make the known operands initializers, and the omitted ones empty names."""
    for op in ops:
        for value in op.operands:
            if value in emitter.values:
                continue
            source = owner(value)
            if source is not None and source.name == NO_VALUE:
                emitter.values[value] = ""
            elif value in known:
                emitter.values[value] = emitter.constant("known", known[value])

"""Notes on a training step: the trained parameters, and likely mistakes."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from typing import Any

from tensoropt.compiler.training.tables import listed_tables
from tensoropt.dialects import onnx
from tensoropt.dialects.kernels import count_missing_kernels, runs_on_cuda
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["batch_notes", "training_notes"]

_SHOWN = 4
_WIDELY_KNOWN = 21  # the last opset that all CUDA kernels support


def training_notes(
    module: ir.Module, step: ir.Module, precision: str, tables: Sequence[str]
) -> Iterator[str]:
    """Yield lines on ``step``, the training step of a prepared ``module``; linear in its ops.

    ``tables`` are the names of the constants that are frozen by default.
    """
    weights = _arguments(module, keys.PARAM)
    state = _arguments(step, keys.STATE)
    kinds = {name: keys.STATE.of(own) for name, (_, own) in state.items()}
    trained = [name for name in state if name in weights and kinds[name] == "parameter"]
    kept = [name for name in weights if name not in state]
    still = f"; not trained: {_counted(kept, weights)}, {_names(kept)}" if kept else ""
    yield f"note: trained: {_counted(trained, weights)}{still}"
    if tables:
        flag = ",".join(tables[:_SHOWN])
        yield (
            f"note: not trained, since they are only added, multiplied or compared, as tables and "
            f"masks are: {_names(tables)}; --unfreeze '{flag}' trains them"
        )
    is_certain = keys.LOST.on(module.operation.attributes)  # the exporter has a list
    named = [] if is_certain else [name for name in listed_tables(module) if name in trained]
    if named:
        yield (
            "note: trained, since the exporter names them like parameters, though they are only "
            f"added, multiplied or compared, as tables and masks are: {_names(named)}; --freeze "
            f"'{','.join(named[:_SHOWN])}' if they are buffers"
        )
    yield from _exporter(module)
    if precision == "bfloat16":
        yield "note: ONNX Runtime has no bfloat16 kernels for CPUs: run this with --provider cuda"
    scored = keys.SCORED.get(step.operation.attributes, {})
    for reason, names in scored.items():
        yield (
            "note: attention without a kernel of its own, which takes more time and memory, as it "
            f"has {reason}: {_names(names)}"
        )
    if keys.TRAINING.get(step.operation.attributes, {}).get("fuse_attention") == "true":
        yield from _with_scores(step, {name for names in scored.values() for name in names})
    left = sorted(count_missing_kernels(step).items())
    if left:
        opset = onnx.opsets(step)[""]
        ops = ", ".join(_missing_kernel(name, count, opset) for name, count in left)
        yield f"note: without CUDA kernels, and so on the CPU with --provider cuda too: {ops}"


def _with_scores(step: ir.Module, known: Container[str]) -> Iterator[str]:
    """Yield a line on attention that is not one operation, and for which no reason is known."""
    block = onnx.function(step).regions[0].blocks[0]
    names = [
        onnx.node_name(op.operation) or "Softmax"
        for op in block
        if op.operation.name == "onnx.Softmax"
        and onnx.phase(op.operation) == "forward"
        and _weighs_values(op.operation)
        and _has_scores(op.operation.operands[0])
        and onnx.node_name(op.operation) not in known
    ]
    if names:
        yield (
            "note: attention of a form without a kernel keeps its scores for the backward pass: "
            f"{_names(names)}"
        )


_BEFORE = frozenset(f"onnx.{name}" for name in ("Add", "Cast", "Div", "Mul", "Where"))
_AFTER = frozenset(f"onnx.{name}" for name in ("Cast", "Mul", "Where"))
_STEPS = 6
"""Operations between a softmax and a product at most."""


def _has_scores(value: ir.Value, steps: int = _STEPS) -> bool:
    """Return whether a value is a product of two values that are no weights, possibly masked."""
    op = onnx.owner(value)
    if op is None or not steps:
        return False
    if op.name == "onnx.MatMul":
        return not any(_is_weight(x) for x in op.operands)
    return op.name in _BEFORE and any(_has_scores(x, steps - 1) for x in op.operands)


def _is_weight(value: ir.Value) -> bool:
    op = onnx.made_by(value, "Transpose", "Cast")
    return onnx.owner(value) is None or (op is not None and _is_weight(op.operands[0]))


def _weighs_values(softmax: ir.Operation, steps: int = _STEPS) -> bool:
    """Return whether a product multiplies the result of an operation by values."""
    for use in softmax.results[0].uses:
        reader = use.owner.operation
        if onnx.phase(reader) != "forward":
            continue
        if reader.name == "onnx.MatMul" and use.operand_number == 0:
            return True
        if reader.name in _AFTER and steps and _weighs_values(reader, steps - 1):
            return True
    return False


def batch_notes(step: ir.Module) -> list[str]:
    """Return lines on a training step for which the number of micro-batches is searched."""
    carried = onnx.carried(onnx.function(step), "arg_attrs")
    if any(keys.HYPER.get(own) == "seed" for own in carried):
        return ["note: dropout draws other numbers with another number of micro-batches"]
    return []


def _missing_kernel(name: str, count: int, opset: int) -> str:
    """Return an op with its count, and a hint if its version in an older opset has a kernel."""
    older = (
        opset > _WIDELY_KNOWN
        and runs_on_cuda(name, _WIDELY_KNOWN)
        and not runs_on_cuda(name, opset)
    )
    return (
        f"{name} ({count}; there is one in opset {_WIDELY_KNOWN})" if older else f"{name} ({count})"
    )


_Arguments = dict[str, tuple[ir.Value, ir.DictAttr]]


def _arguments(module: ir.Module, key: keys.Key[Any]) -> _Arguments:
    """Return the arguments of `@main` that carry ``key``, by name."""
    pairs = onnx.arguments(onnx.function(module))
    return {keys.NAME.of(own): (value, own) for value, own in pairs if key.on(own)}


def _exporter(module: ir.Module) -> Iterator[str]:
    """Yield lines on PyTorch parameters that the exporter removed or merged."""
    attributes = module.operation.attributes
    for key, text in _LINES.items():
        names = key.get(attributes, [])
        if names:
            yield f"note: {text.format(_names(names))}"
    aliases = keys.TIED.get(attributes, {})
    tied = [f"{other}={name}" for name, others in aliases.items() for other in others]
    if tied:
        yield f"note: tied in the PyTorch model, and trained as one: {_names(tied)}"


_LINES = {
    keys.LOST: "parameters of the PyTorch model that the exporter folded into others or left "
    "out, and that are not trained: {}; torch.onnx.export(..., optimize=False) keeps them",
    keys.MERGED: "stored once and read under several names, and so trained as one: {}; if they "
    "are not tied, export with training=torch.onnx.TrainingMode.TRAINING",
}


def _counted(names: Sequence[str], weights: _Arguments) -> str:
    elements = sum(math.prod(ir.RankedTensorType(weights[name][0].type).shape) for name in names)
    return f"{len(names)} tensor{'' if len(names) == 1 else 's'} of {elements:,} elements"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:_SHOWN]) + more

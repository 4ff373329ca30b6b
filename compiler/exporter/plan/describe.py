"""Entries of plan.json for a module after the search: tensors, layouts and strategies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from tensoropt.compiler.protos.types import describe_type
from tensoropt.compiler.shapes.caches import past_names
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx as onnx_ops
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.plan.dims import default_name
from tensoropt.runtime.plan.entries import CacheEntry, StrategyEntry, TensorEntry

__all__ = [
    "End",
    "ModuleRows",
    "check_ends",
    "describe_caches",
    "describe_module",
    "described_tensors",
    "dtype_of",
    "ends_of",
]


class ModuleRows(TypedDict):
    """The entries of plan.json for a module."""

    inputs: list[TensorEntry]
    outputs: list[TensorEntry]
    parameters: list[TensorEntry]
    strategies: list[StrategyEntry]


def describe_module(module: ir.Module) -> ModuleRows:
    """Return the ``inputs``, ``outputs``, ``parameters`` and ``strategies`` of plan.json.

    ``module`` has layouts and strategies and is not partitioned yet, so shapes are global. Symbolic
    dimensions are names; an unnamed dimension has a name made from the tensor's. State and
    hyperparameters of a training step are left out.
    """
    arguments = list(described_tensors(module, "arg_attrs"))
    results = described_tensors(module, "res_attrs")
    own = (keys.PARAM, keys.STATE, keys.HYPER)
    return {
        "inputs": [t for t, attributes in arguments if not any(key.on(attributes) for key in own)],
        "outputs": [tensor for tensor, attributes in results if not _is_state(attributes)],
        "parameters": [tensor for tensor, attributes in arguments if keys.PARAM.on(attributes)],
        "strategies": [
            _strategy(op)
            for op in onnx_ops.function(module).regions[0].blocks[0]
            if keys.STRATEGY.on(op.operation.attributes)
        ],
    }


def describe_caches(module: ir.Module) -> list[CacheEntry]:
    """Return the caches of a decoder, in the order of its results; empty for other models."""
    results = onnx_ops.carried(onnx_ops.function(module), "res_attrs")
    names = {keys.CACHE.get(own): keys.NAME.of(own) for own in results}
    in_place = {keys.CACHE.get(own) for own in results if keys.UPDATES.on(own)}
    shapes = {
        tensor["name"]: tensor["shape"]
        for side in ("arg_attrs", "res_attrs")
        for tensor, _ in described_tensors(module, side)
    }
    return [
        {
            "past": past,
            "present": names[past],
            "dim": _growing(shapes[past], shapes[names[past]]),
            "in_place": past in in_place,
        }
        for past in past_names(onnx_ops.function(module))
    ]


def _is_state(result: ir.DictAttr) -> bool:
    """Return whether a result is state of a training step, not an output of the model."""
    return keys.UPDATES.on(result) and not keys.CACHE.on(result)


def _growing(past: list[int | str], present: list[int | str]) -> int | None:
    """Return the dimension in which a cache grows, ``None`` for a cache of fixed size."""
    pairs = enumerate(zip(past, present, strict=True))
    return next((dim for dim, (a, b) in pairs if a != b), None)


def described_tensors(module: ir.Module, side: str) -> Iterator[tuple[TensorEntry, ir.DictAttr]]:
    """Yield the description of each argument or result of `@main`, and its attributes.

    ``side`` is ``arg_attrs`` or ``res_attrs``.
    """
    main = onnx_ops.function(module)
    kind = onnx_ops.signature(main)
    types = kind.inputs if side == "arg_attrs" else kind.results
    for index, (attributes, type_) in enumerate(
        zip(onnx_ops.carried(main, side), types, strict=True)
    ):
        for wanted in (keys.NAME, keys.LAYOUT):
            if not wanted.on(attributes):
                raise UserError(
                    f"func @main: {side[:3]} {index} has no {wanted.name}, "
                    "expected search-strategies to be run"
                )
        tensor: TensorEntry = {
            "name": keys.NAME.of(attributes),
            "dtype": dtype_of(
                type_, keys.NAME.of(attributes), is_parameter=keys.PARAM.on(attributes)
            ),
            "shape": _shape(ir.RankedTensorType(type_), attributes),
            "layout": keys.LAYOUT.of(attributes).texts,
        }
        yield tensor, attributes


@dataclass(frozen=True)
class End:
    """An input or output of a model; in ``shape`` a name is an open size."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


def ends_of(module: ir.Module, side: str) -> Iterator[End]:
    """Yield the inputs of a model, for ``arg_attrs``, or its outputs, for ``res_attrs``.

    Raises :class:`UserError` for a type that ranks cannot receive or return.
    """
    main = onnx_ops.function(module)
    kind = onnx_ops.signature(main)
    types = kind.inputs if side == "arg_attrs" else kind.results
    for attributes, type_ in zip(onnx_ops.carried(main, side), types, strict=True):
        if not keys.PARAM.on(attributes):
            name = keys.NAME.of(attributes)
            dtype = dtype_of(type_, name)
            yield End(name, dtype, tuple(_shape(ir.RankedTensorType(type_), attributes)))


def dtype_of(type_: ir.Type, name: str, *, is_parameter: bool = False) -> str:
    """Return the element type of tensor ``name``; inputs and outputs must have a supported type."""
    element = (
        element_of(str(type_.element_type)) if isinstance(type_, ir.RankedTensorType) else None
    )
    is_text = element is not None and element.name == "STRING"
    odd = element is None or (element.bits < 8 and not is_text) or element.is_complex
    if element is None or (odd and not is_parameter):
        raise UserError(
            f"'{name}': expected a tensor of known rank, of strings, of booleans or of numbers of "
            f"8 bits or more, got: {describe_type(type_)}"
        )
    return "string" if is_text else element.numpy


def check_ends(module: ir.Module) -> None:
    """Raise :class:`UserError` for an input or output of a type that ranks cannot receive or
    return."""
    main = onnx_ops.function(module)
    kind = onnx_ops.signature(main)
    if not len(kind.results):
        raise UserError("has no outputs, expected at least one")
    _check_side(main, "arg_attrs", kind.inputs)
    _check_side(main, "res_attrs", kind.results)


def _check_side(main: ir.Operation, side: str, types: Sequence[ir.Type]) -> None:
    what = "input" if side == "arg_attrs" else "output"
    for index, attributes in enumerate(onnx_ops.signature_attributes(main, side, len(types))):
        name = keys.NAME.get(attributes, str(index))
        try:
            dtype_of(types[index], name, is_parameter=keys.PARAM.on(attributes))
        except UserError as error:
            raise UserError(f"{what} {error}") from None


def _shape(type_: ir.RankedTensorType, attributes: ir.DictAttr) -> list[int | str]:
    names = keys.DIMS.get(attributes, [])
    names += [""] * (type_.rank - len(names))
    tensor = keys.NAME.of(attributes)
    return [
        (name or default_name(tensor, dim))
        if type_.is_dynamic_dim(dim)
        else type_.get_dim_size(dim)
        for dim, name in enumerate(names)
    ]


def _strategy(op: ir.OpView) -> StrategyEntry:
    """Return the row of one node; an absent operand has an empty layout.

    Outer values that the regions of a control-flow op read follow its operands.
    """
    operation = op.operation
    operands, results = keys.STRATEGY.of(operation.attributes)
    return {
        "node": onnx_ops.node_name(operation) or "",
        "op": onnx_ops.split_name(operation.name)[1],
        "operands": _texts(onnx_ops.read_by(operation), operands),
        "results": _texts(operation.results, results),
    }


def _texts(values: Sequence[ir.Value], layouts: Sequence[Layout]) -> list[list[str]]:
    pairs = zip(values, layouts, strict=True)
    return [[] if onnx_ops.is_no_value(value) else layout.texts for value, layout in pairs]

"""Tables and masks among a model's weights, which are frozen by default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from tensoropt.compiler.training.spec import check_patterns
from tensoropt.dialects import onnx
from tensoropt.dialects.build import is_float
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["frozen_tables", "listed_tables", "rows_of", "tables_of"]

# Operators that read a mask or a table of positions, and operators that only move its elements.
_USES = "Add And Div Equal Greater Less Max Min Mul Not Or Pow Sub Where"
_MOVES = "Cast Concat Expand Flatten Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze"
_TABLE, _MOVED = frozenset(_USES.split()), frozenset(_MOVES.split())


def frozen_tables(module: ir.Module, freeze: Sequence[str], unfreeze: Sequence[str]) -> list[str]:
    """Return the tables of a prepared ``module`` that match no pattern of either kind.

    Raises UserError for a pattern of ``unfreeze`` that matches no table.
    """
    tables = list(tables_of(module))
    check_patterns("--unfreeze", unfreeze, [*tables, *listed_tables(module)], "no table or mask")
    patterns = (*freeze, *unfreeze)
    return [name for name in tables if not any(fnmatchcase(name, each) for each in patterns)]


def rows_of(module: ir.Module) -> dict[str, int | None]:
    """Return the number of rows of each weight by name, or None for a scalar."""
    found = {}
    for value, own in onnx.arguments(onnx.function(module)):
        if keys.PARAM.on(own):
            shape = ir.RankedTensorType(value.type).shape
            found[keys.NAME.of(own)] = shape[0] if shape else None
    return found


def tables_of(module: ir.Module) -> Iterator[str]:
    """Yield the weights that look like tables and masks: only added, multiplied or compared.

    Vectors, such as biases, are excluded, and so are parameters that the exporter lists. Linear in
    the ops.
    """
    return (name for name, is_listed in _tables(module) if not is_listed)


def listed_tables(module: ir.Module) -> list[str]:
    """Return the parameters that the exporter lists, though they look like tables and masks."""
    return [name for name, is_listed in _tables(module) if is_listed]


def _tables(module: ir.Module) -> Iterator[tuple[str, bool]]:
    """Yield the names of tables and masks, and whether the exporter lists them as parameters."""
    for value, own in onnx.arguments(onnx.function(module)):
        is_weight = keys.PARAM.on(own) and not keys.FIXED.on(own)
        if is_weight and is_float(value) and _is_table(value):
            yield keys.NAME.of(own), keys.LISTED.on(own)


def _is_table(value: ir.Value) -> bool:
    kind = ir.RankedTensorType(value.type)
    long = [size for size in kind.shape if size != 1]
    return len(long) != 1 and _TABLE.issuperset(_readers(value))


def _readers(value: ir.Value) -> Iterator[str]:
    """Yield the operators that read ``value``, looking through operators that only move
    elements."""
    for use in value.uses:
        op = use.owner.operation if hasattr(use.owner, "operation") else use.owner
        name = op.name.removeprefix("onnx.")
        if name in _MOVED:
            for result in op.results:
                yield from _readers(result)
        else:
            yield name

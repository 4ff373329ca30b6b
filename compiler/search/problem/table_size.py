"""Size check of the cost tables of a mesh, before they are made."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from tensoropt.compiler.layout.mesh import is_deep
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["TablesTooLargeError", "check_tables", "refines"]

CELL_BYTES = 2 * np.dtype(np.float64).itemsize  # time and transient memory
SHARE = 0.25
"""The part of the machine's memory for a search, and the part of that for its tables: the engine
makes copies of them."""
_ROOM = 1.05  # margin of the reported memory, which is rounded


class TablesTooLargeError(UserError):
    """The cost tables of a mesh need more memory than the search may have."""


def check_tables(
    tables: MeshTables, too_large: Iterable[Mesh], memory_bytes: int | None = None
) -> float:
    """Return the bytes that the tables leave of ``memory_bytes``, the default for ``None``.

    Raises TablesTooLargeError if they do not fit, or did not on a coarser mesh. Linear in the edges
    of the graph, after the options of its nodes.
    """
    for coarse in () if is_deep(tables.mesh) else too_large:
        if refines(tables.mesh, coarse):
            raise TablesTooLargeError(
                f"search: the cost tables are larger than those of mesh {coarse}, "
                "expected a mesh of fewer axes"
            )
    whole = SHARE * _memory_bytes() if memory_bytes is None else memory_bytes
    need = table_bytes(tables)
    if need > SHARE * whole:
        enough = format_bytes(_ROOM * need / SHARE)
        raise TablesTooLargeError(
            f"search: the cost tables need about {format_bytes(need)} and may take a quarter of "
            f"its memory, expected --search-memory {enough} or a mesh of fewer axes, "
            f"got: {format_bytes(whole)}"
        )
    return whole - need


def table_bytes(tables: MeshTables) -> int:
    """Return the approximate bytes of the tables of all edges, equal tables once."""
    graph, options, cells = tables.graph, tables.options, {}
    for value, node, operand in graph.edges():
        made, used = options[graph.values[value].producer], options[node]
        cells[id(made), id(used), operand] = len(made) * len(used)
    return CELL_BYTES * sum(cells.values())


def refines(fine: Mesh, coarse: Mesh) -> bool:
    """Return whether ``fine`` divides axes of ``coarse``: it then has all its layouts, and more."""
    axes = iter(coarse.shape)
    left = next(axes)
    for extent in fine.shape:
        if left == 1:
            left = next(axes, 0)
        if left == 0 or left % extent:
            return False
        left //= extent
    return left == 1 and next(axes, None) is None


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

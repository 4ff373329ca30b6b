"""Options of every node of the graph on a mesh."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

from tensoropt.compiler.layout.layouts import fits
from tensoropt.compiler.layout.mesh import grouped
from tensoropt.compiler.layout.rule import Rule, Strategy
from tensoropt.compiler.layout.sizes import is_worth_padding, is_worth_units
from tensoropt.compiler.program.graph import Argument, DimSplits, Graph, Node, Op
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.runtime.layout.layout import PARTIAL_SUM, REPLICATE, Layout, Placement, split
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["node_options", "op_options", "split_as", "stored", "stored_layouts"]


def stored(layout: Layout) -> Layout:
    """Return the layout in which a parameter is stored for a use: whole for partial axes."""
    return layout.replace([a for a, p in enumerate(layout.placements) if p.is_partial], REPLICATE)


@lru_cache(maxsize=4096)
def stored_layouts(
    info: TensorInfo | None,
    mesh: Mesh,
    samples: frozenset[int],
    splits: DimSplits = (),
    *,
    is_sum: bool = False,
) -> tuple[Layout, ...]:
    """Return the layouts of splits and replicas in which a tensor of ``info`` can be stored.

    A sum of gradients (``is_sum``) may also be partial. ``samples`` are the numbers of samples of
    the program (:func:`is_worth_padding`). Axes split a dimension in the order of the mesh, except
    in a few layouts, which come last. A dimension is split as in ``splits`` if its blocks divide or
    its units are worth their padding.
    """
    if info is None:
        return (Layout.replicated(mesh),)
    options: list[Placement] = [REPLICATE, *(split(dim) for dim in range(info.rank))]
    if is_sum:
        options.append(PARTIAL_SUM)
    layouts = map(Layout, grouped(mesh, [options] * len(mesh.shape)))
    fitting = [
        layout
        for layout in layouts
        if _is_worth(split_as(layout, splits, info, mesh), info, mesh, samples, splits)
    ]
    every = dict.fromkeys((*fitting, *_turned(fitting, info, mesh)))
    return tuple(split_as(layout, splits, info, mesh) for layout in every)


def split_as(layout: Layout, splits: DimSplits, info: TensorInfo, mesh: Mesh) -> Layout:
    """Return ``layout`` with its split dimensions split as in ``splits``.

    Only blocks that divide are taken, and units that are worth their padding.
    """
    for own in splits:
        axes = layout.axes_splitting(own.dim)
        if own.units and is_worth_units(own.units, mesh.extents(axes)):
            is_plain = own.units == (info.sizes[own.dim],)  # a unit is a point
            layout = layout if is_plain else layout.with_split(own)
        elif own.blocks:
            found = layout.with_split(split(own.dim, own.blocks))
            layout = found if fits(found, info.sizes, mesh) else layout
    return layout


def _turned(layouts: Sequence[Layout], info: TensorInfo, mesh: Mesh) -> Iterator[Layout]:
    """Yield layouts by turns from which one gather makes a layout without a source in mesh order.

    If every axis splits a tensor that is read whole along one axis, that axis has to be minor. It
    is alone on a spare dimension that it divides. Vectors have no spare dimension, and are too
    small to count.
    """
    if info.rank < 2:
        return
    for layout in layouts:
        for axis in layout.axes_of(REPLICATE):
            finer = (layout.moved([axis], split(dim)) for dim in range(info.rank))
            fitting = [own for own in finer if _divides(own, info, mesh)]
            if fitting and mesh.shape[axis] > 1 and all(own.turned for own in fitting):
                yield fitting[0]


def _is_worth(
    layout: Layout, info: TensorInfo, mesh: Mesh, samples: frozenset[int], splits: DimSplits
) -> bool:
    """Return whether ``layout`` fits a tensor and is worth its padding."""
    if not fits(layout, info.sizes, mesh):
        return False
    units = {own.dim: own.units for own in splits if own.units}
    for dim in layout.padded_dims(info.sizes, mesh):
        size, extents = info.sizes[dim], mesh.extents(layout.axes_splitting(dim))
        axes, pieces = sum(extent > 1 for extent in extents), math.prod(extents)
        is_in_units = dim in units and is_worth_units(units[dim], extents)
        assert isinstance(size, int), "padding of a symbolic dimension"
        if not is_in_units and not is_worth_padding(size, pieces, axes, samples):
            return False
    return True


def _divides(layout: Layout, info: TensorInfo, mesh: Mesh) -> bool:
    return fits(layout, info.sizes, mesh) and not layout.padded_dims(info.sizes, mesh)


def node_options(graph: Graph, node: Node, mesh: Mesh, *, whole: bool) -> tuple[Strategy, ...]:
    """Return the strategies of ``node`` on ``mesh``; if ``whole``, only the replicated strategy.

    An argument or result may have any stored layout, but inputs have no padding, blocks or units.
    """
    if isinstance(node, Op):
        offered = op_options(node.rule, len(node.operands), mesh, graph.samples)
        if not whole:
            return offered
        # Gradients of a whole tensor are summed as partial values and reduced after the last sum.
        summed = (s for s in offered if all(p.is_partial for p in s.results[0].placements))
        replicated = offered[0]
        return (next(summed, replicated) if node.phase == "backward" else replicated,)
    if isinstance(node, Argument):
        if whole:
            return (Strategy((), (), (Layout.replicated(mesh),)),)
        info = graph.values[node.results[0]].info
        splits = () if node.is_fed else graph.splits.get(node.results[0], ())
        is_sum = node.state == "gradient"
        layouts = stored_layouts(info, mesh, graph.samples, splits, is_sum=is_sum)
        if info is not None and node.is_fed:
            layouts = tuple(x for x in layouts if _divides(x, info, mesh))
        return tuple(Strategy((), (), (x,)) for x in layouts)
    operand = node.operands[0]
    info = None if operand is None else graph.values[operand].info
    splits = () if operand is None else graph.splits.get(operand, ())
    return tuple(Strategy((), (x,), ()) for x in stored_layouts(info, mesh, graph.samples, splits))


@lru_cache(maxsize=4096)
def op_options(
    rule: Rule, operands: int, mesh: Mesh, samples: frozenset[int]
) -> tuple[Strategy, ...]:
    """Return the strategies of ``rule`` that are worth their padding (:func:`is_worth_padding`).

    Values that its regions capture are replicated.
    """
    found = strategies(rule, mesh, partial(is_worth_padding, samples=samples))
    whole = (Layout.replicated(mesh),) * (operands - len(rule.operands))
    if not whole:
        return found
    return tuple(Strategy(s.roles, s.operands + whole, s.results) for s in found)

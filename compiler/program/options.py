"""Options of every node of the graph on a mesh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

from tensoropt.compiler.layout.layouts import fits
from tensoropt.compiler.layout.mesh import grouped
from tensoropt.compiler.layout.rule import Rule, Strategy
from tensoropt.compiler.layout.sizes import is_worth_padding
from tensoropt.compiler.program.graph import Argument, DimBlocks, Graph, Node, Op
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.runtime.layout.layout import PARTIAL_SUM, REPLICATE, Layout, Placement, split
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["in_blocks", "node_options", "op_options", "stored", "stored_layouts"]


def stored(layout: Layout) -> Layout:
    """Return the layout in which a parameter is stored for a use: whole for partial axes."""
    return layout.replace([a for a, p in enumerate(layout.placements) if p.is_partial], REPLICATE)


@lru_cache(maxsize=4096)
def stored_layouts(
    info: TensorInfo | None,
    mesh: Mesh,
    samples: frozenset[int],
    blocks: DimBlocks = (),
    *,
    is_sum: bool = False,
) -> tuple[Layout, ...]:
    """Return the layouts of splits and replicas in which a tensor of ``info`` can be stored.

    A sum of gradients (``is_sum``) may also be partial. ``samples`` are the numbers of samples of
    the program (:func:`is_worth_padding`). Axes split a dimension in the order of the mesh, except
    in a few layouts, which come last. A dimension with ``blocks`` is split in these if they divide.
    """
    if info is None:
        return (Layout.replicated(mesh),)
    options: list[Placement] = [REPLICATE, *(split(dim) for dim in range(info.rank))]
    if is_sum:
        options.append(PARTIAL_SUM)
    layouts = map(Layout, grouped(mesh, [options] * len(mesh.shape)))
    fitting = [layout for layout in layouts if _is_worth(layout, info, mesh, samples)]
    every = dict.fromkeys((*fitting, *_turned(fitting, info, mesh)))
    return tuple(in_blocks(layout, blocks, info, mesh) for layout in every)


def in_blocks(layout: Layout, blocks: DimBlocks, info: TensorInfo, mesh: Mesh) -> Layout:
    """Return ``layout`` with each dimension that is split in its ``blocks``, if they divide."""
    for dim, own in blocks:
        found = layout.in_blocks(dim, own)
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


def _is_worth(layout: Layout, info: TensorInfo, mesh: Mesh, samples: frozenset[int]) -> bool:
    if not fits(layout, info.sizes, mesh):
        return False
    padded = ((info.sizes[d], layout.pieces(d, mesh)) for d in layout.padded_dims(info.sizes, mesh))
    return all(isinstance(n, int) and is_worth_padding(n, own, samples) for n, own in padded)


def _divides(layout: Layout, info: TensorInfo, mesh: Mesh) -> bool:
    return fits(layout, info.sizes, mesh) and not layout.padded_dims(info.sizes, mesh)


def node_options(graph: Graph, node: Node, mesh: Mesh, *, whole: bool) -> tuple[Strategy, ...]:
    """Return the strategies of ``node`` on ``mesh``; if ``whole``, only the replicated strategy.

    An argument or result may have any stored layout, but inputs have no padding and no blocks.
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
        blocks = () if node.is_fed else graph.blocks.get(node.results[0], ())
        is_sum = node.state == "gradient"
        layouts = stored_layouts(info, mesh, graph.samples, blocks, is_sum=is_sum)
        if info is not None and node.is_fed:
            layouts = tuple(x for x in layouts if _divides(x, info, mesh))
        return tuple(Strategy((), (), (x,)) for x in layouts)
    operand = node.operands[0]
    info = None if operand is None else graph.values[operand].info
    blocks = () if operand is None else graph.blocks.get(operand, ())
    return tuple(Strategy((), (x,), ()) for x in stored_layouts(info, mesh, graph.samples, blocks))


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

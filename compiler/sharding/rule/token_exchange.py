"""Tokens that travel to the ranks of their experts, and results that travel back."""

from __future__ import annotations

from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.routing import (
    EXPERTS,
    Routes,
    add_up,
    find_ones,
    flat,
    number_ones,
    select_part,
)
from tensoropt.dialects.build import element_type, shape_of
from tensoropt.dialects.mlir import ir

__all__ = ["Exchange"]


class Exchange:
    """Sends tokens to the ranks of their selected experts, and returns the results.

    A token is sent once to each rank that has some of its experts. All ranks gather the routes of
    all tokens, so that each knows the tokens that it receives, and from which rank. A rank also
    sends its first token to itself, because kernels may need a row.
    """

    def __init__(self, make: Arithmetic, routes: Routes) -> None:
        """Find the rows to send and to receive, by ``routes`` of the rank's own tokens."""
        self.make, self.axes = make, make.local.strategy.joint_axes
        self.ranks = make.local.mesh.extent(self.axes)
        every = self._gathered(routes)
        numbers = flat(make, every.experts, [self.ranks, *shape_of(routes.experts)])
        parts, own = self._parts()
        self.sent, come = self._meet(routes.experts, parts), self._meet(numbers, own)
        counts = [make.reduce("ReduceSum", mask, [1]) for mask in (self.sent, come)]
        self.there, self.back = make.concat(counts, 1), make.concat(counts[::-1], 1)
        found = find_ones(make, flat(make, come, [None]))
        self.received = Routes(
            make.take(every.experts, found, 0), make.take(every.weights, found, 0)
        )
        """The routes of the received tokens."""

    def send(self, rows: ir.Value) -> ir.Value:
        """Return the received tokens of all ranks; ``rows`` are the rank's own."""
        tokens = find_ones(self.make, self.sent, 1)
        return self._exchanged(self.make.take(rows, tokens, 0), self.there)

    def returned(self, results: ir.Value) -> ir.Value:
        """Return the sum of the results of all ranks for each of the rank's own tokens."""
        make, rows = self.make, self._exchanged(results, self.back)
        places, _ = number_ones(make, flat(make, self.sent, [None]))
        places = make.transpose(flat(make, places, shape_of(self.sent)), [1, 0])
        return add_up(make, rows, places)

    def _exchanged(self, rows: ir.Value, counts: ir.Value) -> ir.Value:
        return self.make.local.all_to_all_rows(rows, counts, self.axes)

    def _gathered(self, routes: Routes) -> Routes:
        """Return the routes of the tokens of all ranks."""
        make, selected = self.make, shape_of(routes.experts)[1] or 0
        parts = [make.cast(own, ir.F32Type.get()) for own in (routes.experts, routes.weights)]
        every = make.local.all_gather(make.concat(parts, 1), self.axes)
        experts, weights = (
            make.slice(every, 1, start, start + selected) for start in (0, selected)
        )
        return Routes(
            make.cast(experts, element_type(routes.experts)),
            make.cast(weights, element_type(routes.weights)),
        )

    def _parts(self) -> tuple[ir.Value, ir.Value]:
        """Return the part of the experts of each rank along the axes, and the rank's own."""
        import numpy as np

        local = self.make.local
        axes, numbers = local.axes(EXPERTS), np.arange(local.pieces(EXPERTS))
        grid = numbers.reshape([local.mesh.shape[axis] for axis in axes])
        places = [axes.index(axis) for axis in self.axes]
        groups = np.moveaxis(grid, places, range(-len(places), 0)).reshape(-1, self.ranks)
        members = np.empty((len(numbers), self.ranks, 1, 1), np.int64)
        for group in groups:
            members[group, :, 0, 0] = group
        return local.axis_constant(members, axes), local.axis_constant(numbers, axes)

    def _meet(self, numbers: ir.Value, parts: ir.Value) -> ir.Value:
        """Return 1 for each rank and token that are to meet, and 0 for others.

        ``numbers`` are the selected experts of the tokens of each rank, ``parts`` the experts of
        each rank; one of them is the same for all.
        """
        import numpy as np

        make, local = self.make, self.make.local
        mine = select_part(make, numbers, parts)
        found = make.reduce("ReduceMax", mine, [2], keepdims=False)
        first = np.stack([np.arange(self.ranks), np.zeros(self.ranks, np.int64)], 1)[:, None]
        place = local.axis_constant(first, self.axes)
        return make.onnx("ScatterND", [found, place, make.ints([1])], found.type)

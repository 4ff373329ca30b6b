"""Memory of a rank's process: its tensors, and everything else (decision 46)."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.compiler.cost.expected_error import FigureError, read_figure
from tensoropt.compiler.cost.fields import Table

__all__ = ["CONVOLUTIONS", "PRODUCTS", "Footprint", "Loading", "Process", "read_process"]

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
"""Operators with constant weights that ONNX Runtime reorders, all at the same time."""

PRODUCTS = frozenset({"MatMul", "Gemm", "LSTM", "GRU"})
"""Operators with constant weights that ONNX Runtime packs, one weight at a time."""


_COPIES, _MOST_COPIED = 3, 8 << 20
"""Copies of a collective's tensor in the buffers of MPI and tensoropt, and their largest total.

Larger tensors are sent in pieces.
"""

_SMALL = 256 << 10
"""Bytes of a step's collectives for which MPI has buffers from the start.

Beyond this, MPI buffers messages that arrive before they are received: ranks with 30 collectives of
150 KiB (ShuffleNet) need 5 MiB for them.
"""


class Loading:
    """Memory used while a session is created, from its weights in program order."""

    def __init__(self) -> None:
        self._images = self._largest = self._mapped = 0
        self._products: list[int] = []
        self._fused: list[int] = []

    def read(
        self, operator: str, size_bytes: int, *, alone: bool = False, fused: bool = False
    ) -> None:
        """Add the constant weights of a node of an ``operator``.

        If a convolution is ``alone``, no normalisation is fused into it: its original weights are
        pages of a file, which are released right after the read. A product that is ``fused``
        with its successor is a new node to ONNX Runtime, and is packed after all other products.
        """
        if operator in CONVOLUTIONS and alone:
            self._mapped += size_bytes
        elif operator in CONVOLUTIONS:
            self._images += size_bytes
            self._largest = max(self._largest, size_bytes)
        elif operator in PRODUCTS:
            (self._fused if fused else self._products).append(size_bytes)

    def bytes(self) -> int:
        """Return the peak.

        First, both forms of all convolution weights, plus one more weight twice while it is
        reordered. Then the single form that stays, plus both forms of one product.
        """
        images = 2 * (self._images + self._largest)
        return self._mapped + max(images, self._images + self._packing_bytes())

    def _packing_bytes(self) -> int:
        most = packed = 0
        for size in (*self._products, *self._fused):
            most = max(most, packed + 2 * size)
            packed += size
        return most


@dataclass(frozen=True)
class Footprint:
    """Memory demand of a program on one rank.

    ``static_bytes`` and ``transient_bytes`` are the memory of its tensors. ``arena_bytes`` is the
    extent of the arena that they touch, including copies and gaps. ``packed_bytes`` are weights
    that stay twice, in original and packed form; ``loading_bytes`` is the peak while the session is
    created; ``fed_bytes`` are inputs and outputs, which stay from run to run. ``sent_bytes`` is the
    largest tensor that a collective reads or produces, ``passed_bytes`` the total that collectives
    produce in a step.
    """

    static_bytes: int
    transient_bytes: int
    packed_bytes: int = 0
    loading_bytes: int = 0
    fed_bytes: int = 0
    nodes: int = 0
    trains: bool = False
    arena_bytes: int = 0
    sent_bytes: int = 0
    passed_bytes: int = 0


@dataclass(frozen=True)
class Process:
    """Memory of a process besides tensors: `[process]` of a device description.

    ``floor_bytes`` is the memory of an idle rank, ``training_bytes`` the extra memory of a rank
    that trains. ``communicator_bytes`` is per other rank and ``node_bytes`` per node of a graph.
    ``exchange_bytes`` is per other rank of a program with collectives above a minimum size, in
    addition to their buffers. ``gaps`` is the fraction that the arena loses between tensors beyond
    the computed gaps. ``margin`` is the fraction added to the total, a safety margin for the
    promise that a plan fits. ``error`` is the measured error of predictions, ``None`` if it was not
    measured.
    """

    floor_bytes: int
    communicator_bytes: int = 0
    training_bytes: int = 0
    node_bytes: int = 0
    gaps: float = 0.0
    exchange_bytes: int = 0
    margin: float = 0.0
    error: FigureError | None = None

    def rest_bytes(self, ranks: int, nodes: int = 0, *, trains: bool = False) -> int:
        """Return the memory of a process on ``ranks`` ranks that is not in tensors."""
        own = self.training_bytes if trains else 0
        others = self.communicator_bytes * (ranks - 1)
        return self._add_margin(self.floor_bytes + own + others + self.node_bytes * nodes)

    def _add_margin(self, bytes_: int) -> int:
        return round((1 + self.margin) * bytes_)

    def _buffer_bytes(self, footprint: Footprint, ranks: int) -> int:
        if footprint.passed_bytes <= _SMALL:
            return 0
        copied_bytes = min(_COPIES * footprint.sent_bytes, _MOST_COPIED)
        return copied_bytes + self.exchange_bytes * (ranks - 1)

    def bytes(self, footprint: Footprint, ranks: int) -> int:
        """Return the peak memory of the process of a rank, while loading or while running."""
        running: float = footprint.packed_bytes + footprint.fed_bytes
        running += footprint.arena_bytes * (1 + self.gaps) + self._buffer_bytes(footprint, ranks)
        peak = max(footprint.static_bytes + round(running), footprint.loading_bytes)
        rest = self.rest_bytes(ranks, footprint.nodes, trains=footprint.trains)
        return rest + self._add_margin(peak)


def read_process(table: Table) -> Process | None:
    """Return the table ``[process]``, ``None`` if it is empty."""
    if not table.names():
        return None
    process = Process(
        int(table.number("floor_bytes")),
        int(table.amount("communicator_bytes")),
        int(table.amount("training_bytes")),
        int(table.amount("node_bytes")),
        table.amount("gaps"),
        int(table.amount("exchange_bytes")),
        table.amount("margin"),
        read_figure(table.optional("error")),
    )
    table.reject_unread()
    return process

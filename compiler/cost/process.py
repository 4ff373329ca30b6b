"""What the process of a rank takes: its tensors, and all that is no tensor (decision 46)."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.compiler.cost.expected import FigureError, read_figure
from tensoropt.compiler.cost.fields import Table

__all__ = ["CONVOLUTIONS", "PRODUCTS", "Footprint", "Loading", "Process", "read_process"]

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
"""Operators whose constant weights ONNX Runtime lays out anew, all of them at once."""

PRODUCTS = frozenset({"MatMul", "Gemm", "LSTM", "GRU"})
"""Operators whose constant weights it packs, one after the other."""


_COPIES, _MOST_COPIED = 3, 8 << 20
"""How many copies of a tensor that a collective reads or makes are in MPI's buffers and ours, and
how many bytes these take at most: larger tensors go in parts."""

_SMALL = 256 << 10
"""Bytes of a step's collectives for which MPI has buffers from the start. Of more it keeps what
comes before a rank asks for it: ranks with 30 collectives of 150 KiB (ShuffleNet) take 5 MiB so."""


class Loading:
    """What a session takes while it is made, of weights in the order of the program."""

    def __init__(self) -> None:
        self._images = self._largest = self._mapped = 0
        self._products: list[int] = []
        self._fused: list[int] = []

    def read(
        self, operator: str, size_bytes: int, *, alone: bool = False, fused: bool = False
    ) -> None:
        """Say that a node of an ``operator`` has constant weights of that size.

        Of a convolution that is ``alone`` no normalisation becomes a part: what it had before is
        pages of a file, which go as soon as they are read. A product that is ``fused`` with what
        follows it is a new node to ONNX Runtime, and is packed after all that are not.
        """
        if operator in CONVOLUTIONS and alone:
            self._mapped += size_bytes
        elif operator in CONVOLUTIONS:
            self._images += size_bytes
            self._largest = max(self._largest, size_bytes)
        elif operator in PRODUCTS:
            (self._fused if fused else self._products).append(size_bytes)

    def bytes(self) -> int:
        """Return the most: of convolutions both forms of all weights, and one more twice while it
        is made, then the one form that stays, beside both of one product."""
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
    """What a program has on one rank that its process takes room for.

    ``static_bytes`` and ``transient_bytes`` are those of its tensors. ``arena_bytes`` is what these
    touch of the arena, with copies and between gaps. ``packed_bytes`` are weights
    that stay twice, as they are and packed for products; ``loading_bytes`` is what is there while
    the session is made; ``fed_bytes`` are inputs and outputs, which stay from run to run.
    ``sent_bytes`` is the largest tensor that a collective reads or makes, ``passed_bytes`` all that
    they make in a step.
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
    """What a process of a device takes beside tensors: `[process]` of a device description.

    ``floor_bytes`` is a rank that runs nothing, ``training_bytes`` what one that trains has more,
    ``communicator_bytes`` are for each other rank, ``node_bytes`` for each node of a graph,
    ``exchange_bytes`` for each other rank of a program with collectives of some size, beside their
    buffers.
    ``gaps`` is the part that the arena loses between tensors beyond what is worked out, ``margin``
    the part of all that is added, as more is promised to fit than is known. ``error`` is how far
    predictions of processes were off where they were measured, ``None`` where they were not.
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
        """Return what of a process on ``ranks`` ranks is no tensor."""
        own = self.training_bytes if trains else 0
        others = self.communicator_bytes * (ranks - 1)
        return self._stated(self.floor_bytes + own + others + self.node_bytes * nodes)

    def _stated(self, bytes_: int) -> int:
        return round((1 + self.margin) * bytes_)

    def _buffer_bytes(self, held: Footprint, ranks: int) -> int:
        if held.passed_bytes <= _SMALL:
            return 0
        return min(_COPIES * held.sent_bytes, _MOST_COPIED) + self.exchange_bytes * (ranks - 1)

    def bytes(self, held: Footprint, ranks: int) -> int:
        """Return the most that the process of a rank takes, while it loads or while it runs."""
        running = held.packed_bytes + held.fed_bytes + held.arena_bytes * (1 + self.gaps)
        running += self._buffer_bytes(held, ranks)
        rest = self.rest_bytes(ranks, held.nodes, trains=held.trains)
        return rest + self._stated(max(held.static_bytes + round(running), held.loading_bytes))


def read_process(table: Table) -> Process | None:
    """Return the table ``[process]``, None where it is empty."""
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

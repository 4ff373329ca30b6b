"""Recurrent networks."""

from __future__ import annotations

from fuzz.builder import Builder
from fuzz.operators.registry import maker

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@maker(1.2)
def recurrent(b: Builder) -> None:
    kind = b.choose(tuple(GATES))
    x = b.pick(lambda v: v.rank == 3 and v.dtype == "float32" and v.array.size > 0)
    sequence, batch, width = x.shape
    hidden, ways = b.integer(1, 4), b.integer(1, 2)
    gates = GATES[kind] * hidden

    def made(*shape: int) -> object:
        return b.weight(shape, exact=False)

    operands = [made(ways, gates, width), made(ways, gates, hidden)]
    lengths = b.rng.integers(1, sequence + 1, batch) if sequence else None
    later = [
        made(ways, 2 * gates) if b.flip(0.7) else None,
        b.constant(lengths.astype("int32")) if lengths is not None and b.flip(0.3) else None,
        made(ways, batch, hidden) if b.flip(0.4) else None,
    ]
    held = {"hidden_size": hidden, "linear_before_reset": 1 if kind == "GRU" and b.flip() else None}
    one_way = b.choose((None, "reverse"))
    direction = "bidirectional" if ways == 2 else one_way
    b.add(kind, x, *operands, *later, results=3 if kind == "LSTM" else 2,
          direction=direction, **held)  # fmt: skip

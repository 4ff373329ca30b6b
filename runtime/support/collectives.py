"""The collectives that the graphs of ranks hold, by the names of their operators."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ALONE", "DOMAIN", "JOINED", "PLAIN", "STARTS", "WAITS", "reads_later"]

DOMAIN = "tensoropt"

PLAIN = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll")
"""One each: (x, token) to (y, token)."""

ALONE = ("CollectivePermute",)
"""The same, but never started before it is waited for."""

JOINED: Mapping[str, str] = {
    f"Combined{kind}": kind for kind in ("AllReduce", "AllGather", "ReduceScatter")
}
"""Several sent as one, and of which kind: (token, x1, x2, ...) to (token, y1, y2, ...)."""

STARTS: Mapping[str, str] = {f"{kind}Start": kind for kind in (*PLAIN, *JOINED)}
"""What goes on beside other nodes, and as what: (token, x1, ...) to (token, handle, y1, ...)."""

WAITS: Mapping[str, str] = {f"{kind}Wait": f"{kind}Start" for kind in (*PLAIN, *JOINED)}
"""What is behind them, and its start: (handle, y1, ...) and maybe x1, ... to (z1, ...)."""


def reads_later(start: str) -> bool:
    """Say whether a transfer still reads its x once it is started, so that the wait is given it."""
    return not start.endswith("AllReduceStart")

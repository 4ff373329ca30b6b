"""A rank's channel to its coordinator, which reconnects if the coordinator is replaced."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from tensoropt.elastic.generation.messages import NOTHING, connect
from tensoropt.runtime.support.messages import Message, receive, send

__all__ = ["Channel"]

_AGAIN_S = 0.2  # between two attempts to connect


class Channel:
    """Messages from and to the coordinator; ``hello`` returns the first one of each connection.

    `ask` is the pending order for the gap between two steps; `next` returns the other orders.
    """

    def __init__(self, address: str, key: bytes, hello: Callable[[], Message]) -> None:
        self._address, self._key, self._hello = address, key, hello
        self._orders: queue.Queue[Message] = queue.Queue()
        self._sending = threading.Lock()
        self._connection: Connection | None = None
        self._lost_at: float | None = time.monotonic()
        self.ask = NOTHING
        self._settled, self._is_kept = 0, True
        self._settling = threading.Condition()

    def open(self) -> None:
        """Start to connect, on a thread."""
        threading.Thread(target=self._listen, daemon=True).start()

    def lost_for_s(self) -> float:
        """Return the seconds since the coordinator was lost, 0 while connected."""
        lost_at = self._lost_at
        return 0.0 if lost_at is None else time.monotonic() - lost_at

    def send(self, kind: str, **facts: object) -> None:
        """Send a message; drop it while disconnected, as `hello` repeats all that matters."""
        with self._sending:
            if self._connection is not None:
                with suppress(OSError):  # the listening thread notices the loss
                    send(self._connection, {"kind": kind, **facts})

    def wait_until_settled(self, step: int, seconds: float) -> bool:
        """Wait until the coordinator has settled the snapshot of ``step``, or is lost.

        Returns False if the coordinator has discarded that snapshot, and needs the one before it.
        """
        with self._settling:
            self._settling.wait_for(
                lambda: self._settled >= step or self._connection is None, seconds
            )
            return self._settled != step or self._is_kept

    def next(self, seconds: float) -> Message | None:
        """Wait for the next order without spinning; None if none arrives within ``seconds``."""
        try:
            return self._orders.get(timeout=seconds)
        except queue.Empty:
            return None

    def _listen(self) -> None:
        while True:
            with suppress(OSError, EOFError, ValueError):
                connection = connect(self._address, self._key)
                with self._sending:
                    send(connection, self._hello())
                    self._connection, self._lost_at = connection, None
                self._receive_from(connection)
            with self._sending:
                self._connection = None
            with self._settling:
                self._settling.notify_all()
            if self._lost_at is None:
                self._lost_at = time.monotonic()
            time.sleep(_AGAIN_S)

    def _settle(self, step: int, *, is_kept: bool) -> None:
        with self._settling:
            if step >= self._settled:
                self._settled, self._is_kept = step, is_kept
            self._settling.notify_all()

    def _receive_from(self, connection: Connection) -> None:
        while True:
            order = receive(connection)
            if order["kind"] == "ask":
                self.ask = max(self.ask, int(order["what"]))
            elif order["kind"] == "settled":
                self._settle(int(order["step"]), is_kept=bool(order["is_kept"]))
            else:
                self._orders.put(order)

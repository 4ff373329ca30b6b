"""A rank's connection to its coordinator, which outlives that one: a new one finds the rank."""

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

_AGAIN_S = 0.2  # between two tries to find a coordinator


class Channel:
    """What this rank is told and tells; ``hello`` gives what every new coordinator is told first.

    Orders to be taken between steps are in `ask`; the others wait for `next`.
    """

    def __init__(self, address: str, key: bytes, hello: Callable[[], Message]) -> None:
        self._address, self._key, self._hello = address, key, hello
        self._orders: queue.Queue[Message] = queue.Queue()
        self._sending = threading.Lock()
        self._connection: Connection | None = None
        self._lost_at: float | None = time.monotonic()
        self.ask = NOTHING
        self._settled = 0
        self._settling = threading.Condition()

    def open(self) -> None:
        """Begin to look for a coordinator."""
        threading.Thread(target=self._listen, daemon=True).start()

    def lost_for_s(self) -> float:
        """Return for how long there has been no coordinator, 0 while there is one."""
        lost_at = self._lost_at
        return 0.0 if lost_at is None else time.monotonic() - lost_at

    def tell(self, kind: str, **facts: object) -> None:
        """Send a message; without a coordinator it is lost: `hello` says what a new one needs."""
        with self._sending:
            if self._connection is not None:
                with suppress(OSError):  # found out by the thread that listens
                    send(self._connection, {"kind": kind, **facts})

    def wait_until_settled(self, step: int, seconds: float) -> None:
        """Wait for the coordinator to have done with the snapshot of a step, or to be lost."""

        def is_so() -> bool:
            return self._settled >= step or self._connection is None

        with self._settling:
            self._settling.wait_for(is_so, seconds)

    def next(self, seconds: float) -> Message | None:
        """Wait for the next order, asleep; None where there is none within ``seconds``."""
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
            self._settle(0)
            if self._lost_at is None:
                self._lost_at = time.monotonic()
            time.sleep(_AGAIN_S)

    def _settle(self, step: int) -> None:
        with self._settling:
            self._settled = max(self._settled, step)
            self._settling.notify_all()

    def _receive_from(self, connection: Connection) -> None:
        while True:
            order = receive(connection)
            if order["kind"] == "ask":
                self.ask = max(self.ask, int(order["what"]))
            elif order["kind"] == "settled":
                self._settle(int(order["step"]))
            else:
                self._orders.put(order)

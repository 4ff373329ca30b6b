"""The socket that ranks connect to; strangers are dropped and never delay ranks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from tensoropt.elastic.generation.messages import accept
from tensoropt.runtime.support.messages import Message, receive

__all__ = ["Listener"]

_BACKLOG = 128
_STRANGERS = 256  # concurrent handshakes
_PAUSE_S = 0.05


class Listener:
    """Accepts connections at ``address`` until it is closed, with one thread per connection.

    ``heard`` is called with a connection and each of its messages, and with None at its end.
    Raises OSError if the address is in use.
    """

    def __init__(
        self, address: str, key: bytes, heard: Callable[[Connection, Message | None], None]
    ) -> None:
        self._key, self._heard = key, heard
        self._socket = _bound(address)
        self.address = address
        if not address.startswith("@"):  # the system may have chosen the port
            host, port = self._socket.getsockname()[:2]
            self.address = f"{host}:{port}"
        self._is_closed = False
        self._unknown = threading.Semaphore(_STRANGERS)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        self._is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                found, _ = self._socket.accept()
            except OSError:  # closed, or too many open files
                time.sleep(_PAUSE_S)
                continue
            if not self._unknown.acquire(blocking=False):
                found.close()  # ranks retry
                continue
            connection = Connection(found.detach())
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection:
            try:
                accept(connection, self._key)
            except OSError:
                return
            finally:
                self._unknown.release()
            with suppress(OSError, EOFError, ValueError):
                while True:
                    self._heard(connection, receive(connection))
            self._heard(connection, None)


def _bound(address: str) -> socket.socket:
    if address.startswith("@"):
        found = socket.socket(socket.AF_UNIX)
        place: str | tuple[str, int] = "\0" + address[1:]
    else:
        host, _, port = address.rpartition(":")
        found, place = socket.socket(), (host, int(port))
    try:
        found.bind(place)
        found.listen(_BACKLOG)
    except OSError:
        found.close()
        raise
    return found

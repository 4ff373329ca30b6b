"""Messages between processes of one job: JSON, never pickles, over a connection."""

from __future__ import annotations

import json
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Message", "receive", "send"]

Message = dict[str, Any]
"""A message; ``kind`` is its type if a connection carries several."""

_LARGEST = 64 << 20  # bytes of a message


def send(connection: Connection, message: Message) -> None:
    """Send a message. Raises OSError."""
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection, largest: int | None = _LARGEST) -> Message:
    """Return the next message. Raises EOFError or OSError at the end of the connection.

    A message of more than ``largest`` bytes closes the connection (OSError); None: no limit, for
    trusted peers.
    """
    message: Message = json.loads(connection.recv_bytes(largest))
    return message

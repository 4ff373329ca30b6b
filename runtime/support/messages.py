"""What processes of one job tell each other: JSON, never pickles, over a connection."""

from __future__ import annotations

import json
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Message", "receive", "send"]

Message = dict[str, Any]
"""``kind`` says what it is, where there are several."""

_LARGEST = 64 << 20  # bytes of a message


def send(connection: Connection, message: Message) -> None:
    """Send a message. Raises OSError."""
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection, largest: int | None = _LARGEST) -> Message:
    """Return the next message. Raises EOFError or OSError at the end of the connection.

    One of more than ``largest`` bytes ends it too; None: those at the other end are trusted.
    """
    message: Message = json.loads(connection.recv_bytes(largest))
    return message

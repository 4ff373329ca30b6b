"""Authenticated connections between ranks and their coordinator.

`multiprocessing.connection` carries the messages as bytes, never as pickles. Its own handshake is
not used: it does not include the role of the prover, so a stranger could pass one process's
challenge on to another and return the answer.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

__all__ = [
    "NOTHING",
    "PAUSE",
    "PAUSE_ON_HOST",
    "STOP",
    "StrangerError",
    "accept",
    "connect",
]

NOTHING, PAUSE, PAUSE_ON_HOST, STOP = range(4)
"""Requests that ranks agree on with a step: nothing; a handover; a handover through host memory
although the state is on a device; the end."""

_PATIENCE_S = 10.0  # for each message of the handshake
_NONCE = 32  # bytes
_PROOF = hashlib.sha256().digest_size
_COORDINATOR, _RANK = b"tensoropt coordinator", b"tensoropt rank"


class StrangerError(OSError):
    """The other side does not have the job's key."""


def connect(address: str, key: bytes) -> Connection:
    """Return a connection to the coordinator at ``address``: "@name", abstract, or "host:port".

    Raises OSError, also if another process listens there.
    """
    connection = Connection(_open_socket(address).detach())
    try:
        with _handshake_timeout(connection):
            own = secrets.token_bytes(_NONCE)
            connection.send_bytes(own)
            answer = _receive_exactly(connection, _NONCE + _PROOF)
            both = own + answer[:_NONCE]
            _check(answer[_NONCE:], _proof(key, _COORDINATOR, both))
            connection.send_bytes(_proof(key, _RANK, both))
    except BaseException:
        connection.close()
        raise
    return connection


def accept(connection: Connection, key: bytes) -> None:
    """Authenticate a rank that connected, and prove the coordinator's key. Raises OSError."""
    with _handshake_timeout(connection):
        theirs, own = _receive_exactly(connection, _NONCE), secrets.token_bytes(_NONCE)
        connection.send_bytes(own + _proof(key, _COORDINATOR, theirs + own))
        _check(_receive_exactly(connection, _PROOF), _proof(key, _RANK, theirs + own))


def _open_socket(address: str) -> socket.socket:
    if not address.startswith("@"):
        host, _, port = address.rpartition(":")
        return socket.create_connection((host, int(port)))
    found = socket.socket(socket.AF_UNIX)
    try:
        found.connect("\0" + address[1:])
    except OSError:
        found.close()
        raise
    return found


@contextmanager
def _handshake_timeout(connection: Connection) -> Iterator[None]:
    """Set a timeout on the socket's reads and writes during the handshake."""
    _limit(connection, _PATIENCE_S)
    yield
    _limit(connection, 0.0)


def _limit(connection: Connection, seconds: float) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), 0))


def _receive_exactly(connection: Connection, size: int) -> bytes:
    try:
        found = connection.recv_bytes(size)
    except EOFError:
        raise StrangerError("no proof of the job's key") from None
    if len(found) != size:
        raise StrangerError("no proof of the job's key")
    return found


def _proof(key: bytes, role: bytes, nonces: bytes) -> bytes:
    return hmac.digest(key, role + nonces, "sha256")


def _check(found: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(found, expected):
        raise StrangerError("wrong proof of the job's key")

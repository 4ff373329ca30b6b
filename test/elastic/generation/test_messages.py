"""Whom a coordinator and its ranks believe."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection

import pytest

from tensoropt.elastic.coordinator.listener import Listener
from tensoropt.elastic.generation import messages
from tensoropt.elastic.generation.messages import StrangerError, connect
from tensoropt.runtime.support.messages import send

KEY = b"k" * 32


@pytest.fixture
def heard():
    return []


@pytest.fixture
def listener(heard):
    made = Listener(
        f"@tensoropt-test-{secrets.token_hex(8)}",
        KEY,
        lambda connection, message: heard.append(message),
    )
    yield made
    made.close()


def _await(heard, count):
    end = time.monotonic() + 10
    while len(heard) < count and time.monotonic() < end:
        time.sleep(0.01)
    return heard[:count]


def test_a_rank_with_the_key_is_heard(listener, heard):
    with connect(listener.address, KEY) as connection:
        send(connection, {"kind": "hello"})
        assert _await(heard, 1) == [{"kind": "hello"}]
    assert _await(heard, 2)[1] is None


def test_a_rank_with_another_key_is_not_heard(listener, heard):
    with pytest.raises(StrangerError, match="wrong proof"):
        connect(listener.address, b"x" * 32)
    time.sleep(0.05)
    assert heard == []


def test_silence_and_garbage_keep_nobody_waiting(listener, heard):
    silent, garbage, halting = (_raw(listener.address) for _ in range(3))
    halting.sendall(b"\0")
    garbage.sendall(b"\x7f\xff\xff\xff" + b"GET / HTTP/1.1\r\n\r\n" * 10)
    with connect(listener.address, KEY) as connection:
        send(connection, {"kind": "hello"})
        assert _await(heard, 1) == [{"kind": "hello"}]
    silent.close()
    halting.close()
    garbage.close()


def test_who_halts_in_the_middle_is_dropped(listener, monkeypatch):
    monkeypatch.setattr(messages, "_PATIENCE_S", 1.0)
    with _raw(listener.address) as halting:
        halting.sendall(b"\0\0\0\x20" + b"half")
        halting.settimeout(10)
        assert halting.recv(1000) == b""  # closed


def test_a_proof_cannot_be_had_from_another_rank(listener):
    """Who stands between cannot have one rank answer what it is asked to prove to another."""
    name = f"@tensoropt-test-{secrets.token_hex(8)}"
    server = socket.socket(socket.AF_UNIX)
    server.bind("\0" + name[1:])
    server.listen()
    threading.Thread(target=_reflect, args=(server,), daemon=True).start()
    with pytest.raises(StrangerError):
        connect(name, KEY)
    server.close()


def _reflect(server):
    """Answer with what was sent, as a coordinator that has no key would like to."""
    connection = Connection(server.accept()[0].detach())
    with suppress(OSError, EOFError):
        asked = connection.recv_bytes()
        connection.send_bytes(asked + asked)


def _raw(address):
    made = socket.socket(socket.AF_UNIX)
    made.connect("\0" + address[1:])
    return made

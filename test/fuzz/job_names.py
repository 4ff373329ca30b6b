"""What jobs that start are called by, and so what shared memory would be theirs.

MPICH and UCX call their files by the name of the job. A job that `tensoropt-run` starts is called
like its folder; the ranks of one that meet by variables hear theirs from rank 0, over a connection
that leads through this process.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["FolderNames", "MeetingNames"]

_CREATED = 0x100  # IN_CREATE of sys/inotify.h
_FOLDER = re.compile(rb"tensoropt-run-[0-9a-f]+")
_READY = re.compile(rb"^ready (\S+)\n", re.MULTILINE)


class FolderNames:
    """The names of the jobs whose folders are made in ``temporary`` from now on."""

    def __init__(self, temporary: Path) -> None:
        libc = ctypes.CDLL(None)
        self._events = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if libc.inotify_add_watch(self._events, os.fsencode(temporary), _CREATED) < 0:
            raise OSError(f"{temporary}: cannot be watched")
        self._found: set[str] = set()

    def found(self) -> set[str]:
        """Return every name until now: of a folder that is gone again too."""
        with suppress(BlockingIOError):
            while seen := os.read(self._events, 1 << 16):
                self._found |= {name.decode() for name in _FOLDER.findall(seen)}
        return self._found

    def close(self) -> None:
        os.close(self._events)


class MeetingNames(socketserver.ThreadingTCPServer):
    """Hands on what ranks say that come to ``address`` to rank 0, which is at the same port of
    127.0.0.1, and what it answers."""

    address = "127.0.0.2"

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int) -> None:
        super().__init__((self.address, port), _Connection)
        self.rank_0 = ("127.0.0.1", port)
        self._found: set[str] = set()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def hear(self, said: bytes) -> None:
        """Take all that rank 0 has said on one connection until now."""
        self._found |= {name.decode() for name in _READY.findall(said)}

    def found(self) -> set[str]:
        """Return the name that rank 0 has told, before any rank hears it."""
        return self._found

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Connection(socketserver.BaseRequestHandler):
    server: MeetingNames

    def handle(self) -> None:
        with suppress(OSError), socket.create_connection(self.server.rank_0) as hub:
            said = threading.Thread(target=_hand_on, args=(self.request, hub, None), daemon=True)
            said.start()
            _hand_on(hub, self.request, self.server.hear)
            said.join()


def _hand_on(
    source: socket.socket, target: socket.socket, hear: Callable[[bytes], None] | None
) -> None:
    """Copy until one side is gone, and let the other know."""
    everything = b""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            everything += data
            if hear is not None:
                hear(everything)
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)

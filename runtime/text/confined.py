"""Work with untrusted text in a process with limits of time and memory.

A thread would not do: it cannot be killed, and native code may exhaust memory or end the process.
"""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message, receive, send

__all__ = ["Confined", "answer_confined"]

_FILES = 16  # open files: the process has three and the connection


class Confined:
    """Asks the process `python -m MODULE FD`, which starts when needed. Thread-safe.

    ``name`` is the subject of errors, ``limit_s`` the processor time of an answer, and ``first``
    the message that each new process gets.
    """

    def __init__(self, module: str, name: str, limit_s: float, first: Message) -> None:
        self._module, self._name, self._limit_s, self._first = module, name, limit_s, first
        self._lock = threading.Lock()
        self._running: _Running | None = None

    def ask(self, message: Message) -> Message:
        """Return the answer. Raises `UserError` if the process exceeds a limit."""
        with self._lock:
            if self._running is None or not self._running.end.alive:
                self._running = _Running(self._module)
                self._running.send(self._first)
            running = self._running
            try:
                running.send(message)
                return receive(running.connection)
            except (EOFError, OSError):
                is_late = running.process.wait() == -signal.SIGPROF
                running.end()
                why = f"took more than {self._limit_s:g} s" if is_late else "ended its process"
                raise UserError(f"{self._name}: {why}") from None

    def close(self) -> None:
        """End the process; it starts again when needed."""
        with self._lock:
            if self._running is not None:
                self._running.end()
            self._running = None


class _Running:
    """A process, and the connection to it."""

    def __init__(self, module: str) -> None:
        ours, theirs = socket.socketpair()
        nothing = subprocess.DEVNULL
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
            )
        self.connection = Connection(ours.detach())
        self.end = weakref.finalize(self, _end, self.process, self.connection)

    def send(self, message: Message) -> None:
        send(self.connection, message)


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    connection.close()
    process.kill()
    process.wait()


def answer_confined(
    connection: Connection,
    answer: Callable[[Message], Message],
    *,
    limit_s: float,
    memory_bytes: int,
) -> None:
    """Answer messages until the connection is closed, within limits of this process.

    Each answer may take ``limit_s`` seconds of the processor, after which the kernel kills the
    process; the address space may have ``memory_bytes``. An exception is the answer ``error``.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    while True:
        message = receive(connection, None)
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        try:
            found = answer(message)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:500]}
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        send(connection, found)

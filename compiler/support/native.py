"""Calls of native libraries on model contents in a child process, which may crash.

The libraries of ONNX and ONNX Runtime do not survive every model: an integer division by zero, an
axis beyond the rank or a size of 2^62 ends the process or never returns. So they run in a child
that is forked once, answers calls in sequence, and is replaced when it dies. The child has a limit
of processor time per call, and a limit of memory beyond its size at the start.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["NativeError", "NativeFailureError", "call", "seconds_for", "session"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MEMORY_BYTES = 4 << 30
_NODES_PER_S = 200
_GRACE = 10  # wall-clock seconds per second of processor time, for a busy machine
_LEAST_GRACE_S = 30.0


class NativeError(Exception):
    """An error that the native code raised itself."""


class NativeFailureError(Exception):
    """The end of the child without an answer, such as `ended by SIGFPE`."""


def call(action: Callable[[*Ts], T], *given: *Ts, seconds: int) -> T:
    """Return ``action(*given)``, run in the child; ``action`` is a function of a module.

    Function, arguments and result must be picklable. Raises :class:`NativeError` with the text of
    any exception, and :class:`NativeFailureError` if the child crashes, takes more than ``seconds``
    of processor time or needs too much memory.
    """
    with _lock:
        if not _living or _living[0].parent != os.getpid():  # none yet, or the parent's
            _living[:] = [_Child()]
        return _living[0].ask(action, given, seconds)


def seconds_for(nodes: int, least: int = 10) -> int:
    """Return a generous limit of processor time for a graph of ``nodes`` nodes, in seconds."""
    return least + nodes // _NODES_PER_S


def session(model: bytes, *, optimised: bool = False) -> InferenceSession:
    """Return ONNX Runtime's session of a model, unchanged or ``optimised``; for the child."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


_lock = threading.Lock()
_living: list[_Child] = []


class _Child:
    def __init__(self) -> None:
        self.parent = os.getpid()
        self.pipe, theirs = Pipe()
        self.process = os.fork()
        if not self.process:
            _serve(theirs)
        theirs.close()

    def ask(self, action: Callable[[*Ts], T], given: tuple[*Ts], seconds: int) -> T:
        """Return the answer to one call; a failure removes the child."""
        try:
            self.pipe.send((action, given, seconds))
            if not self.pipe.poll(max(_LEAST_GRACE_S, seconds * _GRACE)):
                os.kill(self.process, signal.SIGXCPU)  # as the kernel does at the limit
            kind, answer = self.pipe.recv()
        except (EOFError, ConnectionError):
            raise NativeFailureError(self._bury(seconds)) from None
        except BaseException:  # Ctrl-C: else the next call would get this answer
            os.kill(self.process, signal.SIGKILL)
            self._bury(seconds)
            raise
        if kind == "memory":
            raise NativeFailureError(_no_memory())
        if kind == "error":
            raise NativeError(answer)
        value: T = answer
        return value

    def _bury(self, seconds: int) -> str:
        """Wait for the end of the child and describe it."""
        _living.remove(self)
        self.pipe.close()
        status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        if status == -signal.SIGXCPU:
            return f"did not end in {seconds} s"
        return f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with {status}"


def _no_memory() -> str:
    own = resource.getrlimit(resource.RLIMIT_AS)[1]
    if own == resource.RLIM_INFINITY:
        return f"needs more than {_MEMORY_BYTES >> 30} GiB of memory"
    return f"needs more memory than this process may have, {own >> 20} MiB (ulimit -v)"


def _serve(pipe: Connection) -> NoReturn:
    """Answer calls until the parent ends, without running or printing anything of the parent's."""
    try:
        _leave_parent(pipe)
        while True:
            try:
                action, given, seconds = pipe.recv()
            except (EOFError, ConnectionError):
                break
            _allow(seconds)
            pipe.send(_answer(action, given))
    finally:
        os._exit(1)


def _leave_parent(pipe: Connection) -> None:
    faulthandler.disable()  # its file is closed below, and the descriptor may be reused
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    if sys.platform == "linux":  # macOS ignores this limit
        limit, hard = _used_bytes() + _MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _used_bytes() -> int:
    """Return the size of this process's address space."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


def _allow(seconds: int) -> None:
    """Limit this process to ``seconds`` more of processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime) + 1 + seconds
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard != resource.RLIM_INFINITY:
        until = min(until, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (until, hard))


def _answer(action: Callable[..., object], given: tuple[object, ...]) -> tuple[str, object]:
    try:
        return "value", action(*given)
    except MemoryError:
        return "memory", None
    except Exception as error:  # the libraries have no common exception type
        return "error", str(error) or type(error).__name__

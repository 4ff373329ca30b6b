"""Native code at work on what a model contains: in a child process, which may die.

The libraries of ONNX and of ONNX Runtime do not survive every model: an integer that is divided by
zero, an axis beyond the rank or a size of 2^62 ends the process or never ends. So they run in a
child that is forked once, answers one call after the other, and is replaced when it dies. It may
take so much processor time per call, and so much memory more than it had at the start.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["NativeError", "NativeFailureError", "call", "seconds_for", "session"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MEMORY_BYTES = 4 << 30
_NODES_PER_S = 200
_GRACE = 10  # seconds on the clock per second of processor time, beside much other work
_LEAST_GRACE_S = 30.0


class NativeError(Exception):
    """What the native code said itself when it refused."""


class NativeFailureError(Exception):
    """How the child ended that ran the native code, `ended by SIGFPE`, without an answer."""


def call(action: Callable[[*Ts], T], *given: *Ts, seconds: int) -> T:
    """Return ``action(*given)``, a function of a module, run in the child.

    All must be fit for `pickle`. It may take ``seconds`` of processor time. Raises
    :class:`NativeError` with the text of what it raises, :class:`NativeFailureError` where it does
    not survive, takes longer or wants too much memory.
    """
    with _lock:
        return _child().ask(action, given, seconds)


def seconds_for(nodes: int, least: int = 10) -> int:
    """Return the processor time that a graph of so many nodes may take: far more than they do."""
    return least + nodes // _NODES_PER_S


def session(model: bytes, *, optimised: bool = False) -> InferenceSession:
    """Return ONNX Runtime's session of a model as it is, or ``optimised``; for the child."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


_lock = threading.Lock()
_living: list[_Child] = []


def _child() -> _Child:
    """Return the child of this process, a new one if it has none."""
    if not _living or _living[0].parent != os.getpid():
        _living[:] = [_Child()]
    return _living[0]


class _Child:
    def __init__(self) -> None:
        self.parent = os.getpid()
        self.pipe, theirs = Pipe()
        self.process = os.fork()
        if not self.process:
            _serve(theirs)
        theirs.close()

    def ask(self, action: Callable[[*Ts], T], given: tuple[*Ts], seconds: int) -> T:
        """Return the answer to one call; after a failure the child is gone."""
        try:
            what, answer = self._exchange((action, given, seconds), seconds)
        except (EOFError, ConnectionError):
            raise NativeFailureError(self._bury(seconds)) from None
        except BaseException:  # Ctrl-C: the answer would be taken for that to the next call
            os.kill(self.process, signal.SIGKILL)
            self._bury(seconds)
            raise
        if what == "memory":
            raise NativeFailureError(_no_memory())
        if what == "error":
            raise NativeError(answer)
        value: T = answer
        return value

    def _exchange(self, question: object, seconds: int) -> tuple[str, Any]:
        self.pipe.send(question)
        if not self.pipe.poll(max(_LEAST_GRACE_S, seconds * _GRACE)):
            os.kill(self.process, signal.SIGXCPU)  # what the kernel sends when the time is spent
        what, answer = self.pipe.recv()
        return what, answer

    def _bury(self, seconds: int) -> str:
        """Wait for the end of the child; return how it ended."""
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
    """Answer calls until the parent is gone; nothing of the parent's own is run or printed."""
    try:
        _leave_parent(pipe)
        for action, given, seconds in _calls(pipe):
            _allow(seconds)
            pipe.send(_answer(action, given))
    finally:
        os._exit(1)


def _leave_parent(pipe: Connection) -> None:
    faulthandler.disable()  # the file that it writes to is closed, and its number another's
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    if sys.platform == "linux":  # macOS heeds no such limit
        limit, hard = _held_bytes() + _MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _held_bytes() -> int:
    """Return the size of this process's address space."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


def _calls(pipe: Connection) -> Iterator[tuple[Callable[..., object], tuple[object, ...], int]]:
    while True:
        try:
            yield pipe.recv()
        except (EOFError, ConnectionError):
            return


def _allow(seconds: int) -> None:
    """Let this process use that much more processor time."""
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
    except Exception as error:  # the libraries have no type of error in common
        return "error", str(error) or type(error).__name__

"""Python interface to the C functions of the library of collectives."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from typing import Any, NamedTuple, TypedDict

from tensoropt.runtime.ops import library_path
from tensoropt.runtime.support.errors import UserError

__all__ = [
    "Cuda",
    "Position",
    "abort",
    "arena_peak_bytes",
    "ask",
    "collectives_s",
    "cuda",
    "device_used_bytes",
    "fail",
    "move",
    "position",
    "ranks",
    "record",
    "recorded_times",
    "settle",
    "start",
    "vector_lanes",
    "watch",
    "where",
]


class Cuda(TypedDict, total=False):
    """Facts about CUDA on a machine, see `cuda`."""

    nccl: str
    cuda: str
    driver: str
    gpus: list[int]
    names: list[str]
    error: str


class Position(NamedTuple):
    """The progress of a rank: ``moves`` grows while it works, ``where`` is its activity."""

    moves: int
    where: str


def position() -> Position:
    """Return the position of this rank, see `move` and `where`. Callable from any thread."""
    return Position(int(_function("tensoropt_moves", ctypes.c_longlong)()), where())


def move(wait: str = "") -> None:
    """Count progress other than a collective: a run of a graph begins or ends, a message arrives.

    ``wait`` names a wait that begins, for `where`; the next call ends it. Callable from any thread.
    """
    _function("tensoropt_move", None, ctypes.c_char_p)(wait.encode())


def where() -> str:
    """Return this rank's current or last collective, and the number of collectives so far.

    Callable from any thread. Collectives on a device count when they are enqueued; steps that ONNX
    Runtime replays as a CUDA graph do not count.
    """
    return _text("tensoropt_where")


def collectives_s() -> float:
    """Return the seconds that collectives have blocked the nodes of this rank.

    Includes the time waiting for other ranks, excludes transfers that overlap with other nodes. On
    a device it is only the time to enqueue them.
    """
    return float(_function("tensoropt_collectives_s", ctypes.c_double)())


def record(is_on: bool) -> None:
    """Start or stop recording the time of each collective; see `recorded_times`."""
    _function("tensoropt_record", None, ctypes.c_int)(is_on)


def recorded_times() -> dict[str, list[float]]:
    """Return the seconds of each collective since `record`, by the name of its node."""
    found: dict[str, list[float]] = {}
    for line in _text("tensoropt_recorded").splitlines():
        seconds, _, node = line.partition(" ")
        _, _, name = node.partition(" node '")
        found.setdefault(name.removesuffix("'"), []).append(float(seconds))
    return found


def settle() -> None:
    """End the transfers of a run that failed between a start and its wait.

    To be called after such a run, before anything else uses the memory of its session.
    """
    _function("tensoropt_settle", None)()


def abort() -> None:
    """Abort NCCL's communicators; threads that wait for a collective on a device return."""
    _function("tensoropt_abort", None)()


def cuda() -> Cuda:
    """Return the facts of this machine, or ``error``, one line, if something is missing.

    ``nccl``, ``cuda`` and ``driver`` are versions such as "13.0", ``gpus`` the bytes of memory of
    each GPU and ``names`` their names.
    """
    facts: Cuda = json.loads(_text("tensoropt_cuda"))
    return facts


def device_used_bytes(device: int) -> int:
    """Return the bytes of a device's memory that all processes use, -1 if unknown."""
    return int(_function("tensoropt_device_used_bytes", ctypes.c_longlong, ctypes.c_int)(device))


def arena_peak_bytes() -> int:
    """Return the peak bytes in use by sessions with collectives on a device.

    As counted by ONNX Runtime's arenas, with weights; -1 if unknown or without such sessions.
    """
    return int(_function("tensoropt_arena_peak_bytes", ctypes.c_longlong)())


def start(job: str = "") -> None:
    """Initialise MPI under any launcher, unless it is; call before importing ``mpi4py.MPI``.

    ``job`` has the values that all ranks must share, as "NAME=HASH,NAME=HASH". Raises `UserError`.
    """
    # UCX shares memory either through files in /dev/shm or without files. Files need five times the
    # space, so a container's 64 MiB are enough for 10 ranks, and UCX crashes if the space runs out.
    os.environ.setdefault("UCX_TLS", "^posix")
    _check(_function("tensoropt_start", ctypes.c_char_p, ctypes.c_char_p)(job.encode()))


def ranks() -> tuple[int, int] | None:
    """Return this process's rank and the number of ranks, from its environment.

    None if the process was not launched as a rank; the number is 0 if only MPI has it. Raises
    `UserError`.
    """
    found = [ctypes.c_int() for _ in range(3)]
    pointers = [ctypes.POINTER(ctypes.c_int)] * 3
    _check(_function("tensoropt_ranks", ctypes.c_char_p, *pointers)(*map(ctypes.byref, found)))
    rank, size, is_launched = (number.value for number in found)
    return (rank, size) if is_launched else None


def watch() -> None:
    """Connect all ranks with rank 0, for `ask` and `fail`; MPI must be initialised.

    All ranks call this. Raises `UserError`.
    """
    _check(_function("tensoropt_watch", ctypes.c_char_p)())


def fail(why: str) -> None:
    """End all other connected ranks; they report that this rank failed, and ``why``."""
    _function("tensoropt_fail", None, ctypes.c_char_p)(why.encode())


def ask(seconds: float) -> dict[int, Position]:
    """Return, on rank 0, the position of each rank that answers within ``seconds``."""
    answers: bytes = _function("tensoropt_ask", ctypes.c_char_p, ctypes.c_double)(seconds)
    lines = (line.split(" ", 2) for line in answers.decode(errors="replace").splitlines())
    return {int(rank): Position(int(moves), what) for rank, moves, what in lines}


def vector_lanes() -> int:
    """Return the number of floats of the vectors that our kernels use on this processor."""
    return int(_function("tensoropt_vector_lanes", ctypes.c_int)())


def _check(error: bytes | None) -> None:
    if error is not None:
        raise UserError(error.decode(errors="replace"))


def _text(name: str) -> str:
    text: bytes = _function(name, ctypes.c_char_p)()
    return text.decode(errors="replace")


@functools.cache
def _function(name: str, result: type[object] | None, *arguments: type[object]) -> Any:
    function = getattr(_library(), name)
    function.restype, function.argtypes = result, arguments
    return function


@functools.cache
def _library() -> ctypes.CDLL:
    path = library_path()
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be loaded: {error}") from None

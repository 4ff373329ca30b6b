"""What the library of collectives answers outside ONNX Runtime, through its C functions."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from typing import Any, TypedDict

from tensoropt.runtime.ops import library_path
from tensoropt.runtime.support.errors import UserError

__all__ = [
    "Cuda",
    "abort",
    "arena_peak_bytes",
    "ask",
    "collectives_s",
    "cuda",
    "device_used_bytes",
    "fail",
    "ranks",
    "record",
    "recorded",
    "settle",
    "start",
    "watch",
    "where",
]


class Cuda(TypedDict, total=False):
    """What a machine has, see `cuda`."""

    nccl: str
    cuda: str
    driver: str
    gpus: list[int]
    names: list[str]
    error: str


def where() -> str:
    """Return what this rank is doing: its collective, or its last one, and how many they are.

    From any thread. Collectives on a device count when they are enqueued; steps that ONNX Runtime
    replays as a CUDA graph do not.
    """
    return _text("tensoropt_where")


def collectives_s() -> float:
    """Return how many seconds collectives have held the nodes of this rank.

    Waiting for other ranks is part of it, what goes on beside other nodes is not. On a device it is
    only the time to enqueue them.
    """
    return float(_function("tensoropt_collectives_s", ctypes.c_double)())


def record(is_on: bool) -> None:
    """Write down how long each collective takes, from now on or no more; see `recorded`."""
    _function("tensoropt_record", None, ctypes.c_int)(is_on)


def recorded() -> dict[str, list[float]]:
    """Return, by the name of its node, the seconds that each collective took since `record`."""
    found: dict[str, list[float]] = {}
    for line in _text("tensoropt_recorded").splitlines():
        seconds, _, node = line.partition(" ")
        _, _, name = node.partition(" node '")
        found.setdefault(name.removesuffix("'"), []).append(float(seconds))
    return found


def settle() -> None:
    """End the transfers that a run has left under way which failed between a start and its wait.

    To be called after such a run, before anything else uses the memory of its session.
    """
    _function("tensoropt_settle", None)()


def abort() -> None:
    """Abort NCCL's communicators: whoever waits for a collective on a device comes back."""
    _function("tensoropt_abort", None)()


def cuda() -> Cuda:
    """Return what this machine has: ``nccl``, ``cuda`` and ``driver`` (versions, such as "13.0"),
    ``gpus`` (bytes of memory of each) and ``names``; or ``error``, one line, where something is
    missing.
    """
    facts: Cuda = json.loads(_text("tensoropt_cuda"))
    return facts


def device_used_bytes(device: int) -> int:
    """Return how many bytes of a device's memory all processes use, -1 if unknown."""
    return int(_function("tensoropt_device_used_bytes", ctypes.c_longlong, ctypes.c_int)(device))


def arena_peak_bytes() -> int:
    """Return the most bytes that sessions with collectives on a device had in use at a time.

    As ONNX Runtime's arenas count them, weights included; -1 where it does not say or there were no
    such sessions.
    """
    return int(_function("tensoropt_arena_peak_bytes", ctypes.c_longlong)())


def start(job: str = "") -> None:
    """Bring MPI up under any launcher, unless it is; before ``mpi4py.MPI`` is imported.

    ``job`` is what the ranks must have in common, as "NAME=HASH,NAME=HASH". Raises `UserError`.
    """
    # UCX shares memory through files in /dev/shm or without files. Files need five times the room,
    # 64 MiB of a container would do for 10 ranks, and UCX crashes if the room runs out.
    os.environ.setdefault("UCX_TLS", "^posix")
    _check(_function("tensoropt_start", ctypes.c_char_p, ctypes.c_char_p)(job.encode()))


def ranks() -> tuple[int, int] | None:
    """Return this process's rank and how many there are, as its environment says.

    None where nobody started it as one of several; the number is 0 where only MPI knows it. Raises
    `UserError`.
    """
    found = [ctypes.c_int() for _ in range(3)]
    pointers = [ctypes.POINTER(ctypes.c_int)] * 3
    _check(_function("tensoropt_ranks", ctypes.c_char_p, *pointers)(*map(ctypes.byref, found)))
    rank, size, is_launched = (number.value for number in found)
    return (rank, size) if is_launched else None


def watch() -> None:
    """Connect all ranks with rank 0, so that `ask` and `fail` reach them; MPI is up.

    All ranks call this. Raises `UserError`.
    """
    _check(_function("tensoropt_watch", ctypes.c_char_p)())


def fail(why: str) -> None:
    """End all other ranks that are connected; they say that this one failed, and why."""
    _function("tensoropt_fail", None, ctypes.c_char_p)(why.encode())


def ask(seconds: float) -> dict[int, str]:
    """Return, on rank 0, what each rank is doing, of those that answer within ``seconds``."""
    answers: bytes = _function("tensoropt_ask", ctypes.c_char_p, ctypes.c_double)(seconds)
    lines = (line.partition(" ") for line in answers.decode(errors="replace").splitlines())
    return {int(rank): what for rank, _, what in lines}


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

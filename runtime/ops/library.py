"""What the library of collectives answers outside ONNX Runtime, through its C functions."""

from __future__ import annotations

import ctypes
import functools
import json
from typing import Any

from tensoropt.runtime.errors import UserError
from tensoropt.runtime.ops import library_path

__all__ = ["abort", "arena_peak_bytes", "cuda", "device_used_bytes", "where"]


def where() -> str:
    """Return what this rank is doing: its collective, or its last one, and how many they are.

    From any thread. Collectives on a device count when they are enqueued; steps that ONNX Runtime
    replays as a CUDA graph do not.
    """
    return _text("tensoropt_where")


def abort() -> None:
    """Abort NCCL's communicators: whoever waits for a collective on a device comes back."""
    _function("tensoropt_abort", None)()


def cuda() -> dict[str, Any]:
    """Return what this machine has: ``nccl``, ``cuda`` and ``driver`` (versions, such as "13.0"),
    ``gpus`` (bytes of memory of each) and ``names``; or ``error``, one line, where something is
    missing.
    """
    facts: dict[str, Any] = json.loads(_text("tensoropt_cuda"))
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


def _text(name: str) -> str:
    text: bytes = _function(name, ctypes.c_char_p)()
    return text.decode(errors="replace")


@functools.cache
def _function(name: str, result: Any, *arguments: Any) -> Any:
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

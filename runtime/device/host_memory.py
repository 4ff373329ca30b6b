"""Host memory of a rank's sessions, limited to the size of their tensors.

By default the C library retains much of the memory that is freed while a session is created, and
ONNX Runtime gives every session an arena with blocks that double in size (decision 46).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxruntime import SessionOptions

__all__ = ["exact_blocks", "share_arena"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_SMALL = 512 << 10  # bytes: larger blocks are returned to the system when they are freed
_USUAL = 32 << 20  # bytes: the limit up to which the C library raises that threshold by itself
_LEAST_ARENA, _MOST_ARENA = 64 << 20, (1 << 31) - 1  # bytes; ONNX Runtime takes an int
_NEXT_POWER_OF_TWO = 0  # growth of ONNX Runtime's arenas when their first block is full

_registering = threading.Lock()
_registered = False


@contextmanager
def exact_blocks() -> Iterator[None]:
    """Return blocks freed inside the context to the system, as far as the C library can."""
    _tune(_SMALL, _SMALL)
    try:
        yield
    finally:
        _tune(_USUAL, 2 * _USUAL)
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _tune(mmap_bytes: int, trim_bytes: int) -> None:
    mallopt: Any = getattr(ctypes.CDLL(None), "mallopt", None)  # GNU C library only
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, mmap_bytes)
        mallopt(_TRIM_THRESHOLD, trim_bytes)


def share_arena(options: SessionOptions, bytes_: int) -> None:
    """Let a session allocate its tensors from the arena of this process.

    The first call creates the arena, one block of twice ``bytes_``: a single block fragments less
    than several. Pages that were never written take no memory.
    """
    global _registered
    with _registering:
        if not _registered:
            _register(min(max(2 * bytes_, _LEAST_ARENA), _MOST_ARENA))
            _registered = True
    options.add_session_config_entry("session.use_env_allocators", "1")


def _register(first_bytes: int) -> None:
    import onnxruntime as ort

    info = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    settings = {
        "arena_extend_strategy": _NEXT_POWER_OF_TWO,
        "initial_chunk_size_bytes": first_bytes,
    }
    ort.create_and_register_allocator(info, ort.OrtArenaCfg(settings))

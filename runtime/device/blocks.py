"""Blocks of a device's memory that other processes can map, and copies between memories.

A block is shared through a CUDA IPC handle.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from tensoropt.runtime.device import cudart
from tensoropt.runtime.device.strided import Strided

__all__ = ["DeviceBlock", "Opened", "Pinned", "Stream", "start_copy"]

_HANDLE = 64  # bytes of cudaIpcMemHandle_t
_LAZY_PEERS = 1  # cudaIpcMemLazyEnablePeerAccess: the block may belong to another device
_NON_BLOCKING = 1  # cudaStreamNonBlocking: no implicit synchronisation with the default stream


class _Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * _HANDLE),)


class _Offset(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in ("x", "y", "z"))


class _Place(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_void_p),
        *((name, ctypes.c_size_t) for name in ("pitch", "width", "rows")),
    )


class _Box(ctypes.Structure):
    """cudaMemcpy3DParms."""

    _fields_ = (
        ("from_array", ctypes.c_void_p),
        ("from_offset", _Offset),
        ("source", _Place),
        ("to_array", ctypes.c_void_p),
        ("to_offset", _Offset),
        ("to", _Place),
        *((name, ctypes.c_size_t) for name in ("width", "rows", "slices")),
        ("kind", ctypes.c_int),
    )


class DeviceBlock:
    """``size`` bytes of the current device at ``address``; freed with this object.

    Raises `UserError` if the device has too little memory.
    """

    def __init__(self, size: int) -> None:
        found = ctypes.c_void_p()
        cudart.call("cudaMalloc", ctypes.byref(found), ctypes.c_size_t(max(size, 1)))
        self.address, self.size = int(found.value or 0), max(size, 1)
        weakref.finalize(self, cudart.call, "cudaFree", found).atexit = False

    def handle(self) -> bytes:
        """Return the IPC handle for other processes of this machine. Raises `UserError`."""
        handle = _Handle()
        cudart.call("cudaIpcGetMemHandle", ctypes.byref(handle), ctypes.c_void_p(self.address))
        return bytes(handle)


class Opened:
    """Another process's block, mapped at ``address`` until `close`; its owner must outlive it.

    Raises `UserError` if the current device cannot reach it.
    """

    def __init__(self, handle: bytes) -> None:
        found = ctypes.c_void_p()
        given = _Handle.from_buffer_copy(handle)
        flags = ctypes.c_uint(_LAZY_PEERS)
        cudart.call("cudaIpcOpenMemHandle", ctypes.byref(found), given, flags)
        self.address = int(found.value or 0)

    def close(self) -> None:
        cudart.call("cudaIpcCloseMemHandle", ctypes.c_void_p(self.address))


class Pinned:
    """Page-locked host memory, as long as this object lives; devices copy to it directly.

    Raises `UserError` if it cannot be locked.
    """

    def __init__(self, address: int, size: int) -> None:
        where = ctypes.c_void_p(address)
        cudart.call("cudaHostRegister", where, ctypes.c_size_t(size), ctypes.c_uint(0))
        weakref.finalize(self, cudart.call, "cudaHostUnregister", where).atexit = False


class Stream:
    """Copies of the current device, in order, concurrent with its other work, until `close`."""

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        flags = ctypes.c_uint(_NON_BLOCKING)
        cudart.call("cudaStreamCreateWithFlags", ctypes.byref(self._handle), flags)

    def copy(self, to: int, source: int, size: int) -> None:
        """Start a copy of ``size`` bytes between two addresses, of the host or of devices."""
        if size:
            self.copy_box(to, source, Strided(0, 0, size))

    def copy_box(self, to: int, source: int, box: Strided) -> None:
        """Start a copy of a box; its offsets count from the two addresses."""
        start_copy(to, source, box, self._handle)

    def wait(self) -> None:
        """Wait for all copies that were started. Raises `UserError` if one failed."""
        self._call("cudaStreamSynchronize")

    def close(self) -> None:
        self._call("cudaStreamDestroy")

    def _call(self, name: str, *arguments: Any) -> None:
        cudart.call(name, *arguments, self._handle)


def start_copy(to: int, source: int, box: Strided, stream: ctypes.c_void_p | None = None) -> None:
    """Start a copy of a box between two addresses; without a stream, `cudart.wait` waits for it."""
    to, source = to + box.to, source + box.source
    if box.slices > 1:
        cudart.call("cudaMemcpy3DAsync", ctypes.byref(_parameters(to, source, box)), stream)
        return
    ours, theirs = (ctypes.c_void_p(address) for address in (to, source))
    width = ctypes.c_size_t(box.width)
    if box.rows > 1:
        own, other = map(ctypes.c_size_t, box.pitch)
        extent = width, ctypes.c_size_t(box.rows)
        cudart.call("cudaMemcpy2DAsync", ours, own, theirs, other, *extent, cudart.DEFAULT, stream)
    else:
        cudart.call("cudaMemcpyAsync", ours, theirs, width, cudart.DEFAULT, stream)


def _parameters(to: int, source: int, box: Strided) -> _Box:
    places = (
        _Place(address, pitch, pitch, rows)
        for address, pitch, rows in zip((to, source), box.pitch, box.slice_rows, strict=True)
    )
    ours, theirs = places
    start, extent = _Offset(), (box.width, box.rows, box.slices)
    return _Box(None, start, theirs, None, start, ours, *extent, cudart.DEFAULT)

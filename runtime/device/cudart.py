"""The CUDA runtime called through ctypes: copies that ONNX Runtime's Python interface lacks."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from tensoropt.runtime.support.errors import UserError

__all__ = [
    "DEFAULT",
    "NAMES",
    "call",
    "clear",
    "copy",
    "defer_waits",
    "load_library",
    "use_device",
    "uuid",
    "wait",
]

NAMES = ("libcudart.so.13", "libcudart.so.12")
DEFAULT = 4  # cudaMemcpyDefault: infers the direction from the addresses
# The legacy default stream: ordered with all streams except ONNX Runtime's, which a run drains.
_LEGACY = None
_PROPERTIES = 1 << 13  # bytes, more than the size of cudaDeviceProp
_UUID = slice(256, 272)  # its offset in cudaDeviceProp in every version: after the name


def use_device(number: int) -> None:
    """Make GPU ``number`` the current device of this thread. Raises `UserError`."""
    call("cudaSetDevice", number)


def uuid(number: int) -> str:
    """Return the unique ID of GPU ``number`` in hex. Raises `UserError`.

    The number itself depends on the devices that are visible to a process.
    """
    properties = ctypes.create_string_buffer(_PROPERTIES)
    call("cudaGetDeviceProperties", properties, number)
    return properties.raw[_UUID].hex()


def copy(to: int, source: int, size: int) -> None:
    """Copy ``size`` bytes between two addresses, each of the host or of a device, and wait."""
    if size:
        addresses = ctypes.c_void_p(to), ctypes.c_void_p(source)
        call("cudaMemcpyAsync", *addresses, ctypes.c_size_t(size), DEFAULT, _LEGACY)
        wait()


def clear(to: int, size: int) -> None:
    """Set ``size`` bytes at a device's address to zero, and wait."""
    if size:
        call("cudaMemsetAsync", ctypes.c_void_p(to), 0, ctypes.c_size_t(size), _LEGACY)
        wait()


@contextmanager
def defer_waits() -> Iterator[None]:
    """Wait once at the end for all copies in the block, which must not touch the host's memory."""
    _later.append(True)
    try:
        yield
    finally:
        _later.pop()
    wait()


_later: list[bool] = []


def wait() -> None:
    """Wait for the copies that were started, unless `defer_waits` does it later."""
    if not _later:
        call("cudaStreamSynchronize", _LEGACY)


def call(name: str, *arguments: object) -> None:
    """Call a function of the CUDA runtime. Raises `UserError` if it fails."""
    library = _library()
    code = getattr(library, name)(*arguments)
    if code != 0:
        library.cudaGetErrorString.restype = ctypes.c_char_p
        text = library.cudaGetErrorString(code).decode()
        library.cudaGetLastError()  # clears the error, which the next caller would get
        raise UserError(f"{name}: {text} (CUDA error {code})")


@cache
def _library() -> ctypes.CDLL:
    try:
        return load_library("TENSOROPT_CUDART", NAMES)
    except OSError as error:
        raise UserError(f"the CUDA runtime cannot be loaded: {error}") from None


def load_library(variable: str, names: Sequence[str]) -> ctypes.CDLL:
    """Return the library that an environment variable names, or else the first of ``names``.

    The names are found if ONNX Runtime has loaded the library before. Raises the first `OSError`.
    """
    given = os.environ.get(variable)
    errors = []
    for name in (given,) if given else names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            errors.append(error)
    raise errors[0]

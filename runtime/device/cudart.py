"""The CUDA runtime, called as a C library: copies that ONNX Runtime's Python interface lacks."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from tensoropt.runtime.support.errors import UserError

__all__ = ["DEFAULT", "NAMES", "call", "clear", "copy", "opened", "together", "use_device", "uuid"]

NAMES = ("libcudart.so.13", "libcudart.so.12")
DEFAULT = 4  # cudaMemcpyDefault: the addresses say which memory is whose
_LEGACY = None  # the stream that waits for all others but ONNX Runtime's, which runs end with
_PROPERTIES = 1 << 13  # bytes, more than cudaDeviceProp takes
_UUID = slice(256, 272)  # of it, in every version: behind the name


def use_device(number: int) -> None:
    """Let this thread's copies go through GPU ``number``. Raises `UserError`."""
    call("cudaSetDevice", number)


def uuid(number: int) -> str:
    """Return what tells GPU ``number`` from all others, whatever it is called. Raises `UserError`.

    Its number is another one in a process that is shown other devices.
    """
    properties = ctypes.create_string_buffer(_PROPERTIES)
    call("cudaGetDeviceProperties", properties, number)
    return properties.raw[_UUID].hex()


def copy(to: int, source: int, size: int) -> None:
    """Copy ``size`` bytes between two addresses, each of the host or of a device, and wait."""
    if size:
        addresses = ctypes.c_void_p(to), ctypes.c_void_p(source)
        call("cudaMemcpyAsync", *addresses, ctypes.c_size_t(size), DEFAULT, _LEGACY)
        _wait()


def clear(to: int, size: int) -> None:
    """Set ``size`` bytes at a device's address to zero, and wait."""
    if size:
        call("cudaMemsetAsync", ctypes.c_void_p(to), 0, ctypes.c_size_t(size), _LEGACY)
        _wait()


@contextmanager
def together() -> Iterator[None]:
    """Wait in the end for all that is done meanwhile, which must not touch the host's memory."""
    _later.append(True)
    try:
        yield
    finally:
        _later.pop()
    _wait()


_later: list[bool] = []


def _wait() -> None:
    if not _later:
        call("cudaStreamSynchronize", _LEGACY)


def call(name: str, *arguments: object) -> None:
    """Call a function of the CUDA runtime. Raises `UserError` where it fails."""
    library = _library()
    code = getattr(library, name)(*arguments)
    if code != 0:
        library.cudaGetErrorString.restype = ctypes.c_char_p
        text = library.cudaGetErrorString(code).decode()
        library.cudaGetLastError()  # or whoever asks next would be told of it
        raise UserError(f"{name}: {text} (CUDA error {code})")


@cache
def _library() -> ctypes.CDLL:
    try:
        return opened("TENSOROPT_CUDART", NAMES)
    except OSError as error:
        raise UserError(f"the CUDA runtime cannot be loaded: {error}") from None


def opened(variable: str, names: Sequence[str]) -> ctypes.CDLL:
    """Return the library that an environment variable names, or else the first of the usual ones.

    Those are found where ONNX Runtime has loaded them before. Raises the first `OSError`.
    """
    given = os.environ.get(variable)
    errors = []
    for name in (given,) if given else names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            errors.append(error)
    raise errors[0]

"""Where a rank computes: on CPU cores, or on a CUDA device with its arrays in that one's memory.

`provider_of` gives a job's; sessions are made with its ``sessions`` and ``prepare``, and read and
write arrays that it made with ``place``, ``empty`` and ``zeros``.
"""

from __future__ import annotations

import ctypes
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tensoropt.runtime.device import cudart
from tensoropt.runtime.device.host_memory import exact_blocks, share_arena
from tensoropt.runtime.device.memory import PeakMemory
from tensoropt.runtime.support.dtypes import ONNX_CODES, Array, dtype_of_code, name_of
from tensoropt.runtime.support.errors import one_line

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, IOBinding, OrtValue, SessionOptions

__all__ = [
    "CPU",
    "CpuProvider",
    "DeviceArray",
    "HostArray",
    "MemoryMeter",
    "PlacedArray",
    "Provider",
    "host_value",
]

_ALIGNMENT = 64  # bytes of a cache line


class MemoryMeter(Protocol):
    """The most memory that a rank had, where it computes, since this was made."""

    def bytes(self) -> int | None:
        """Return it in bytes, None where nothing says."""

    def added_bytes(self) -> int | None:
        """Return it without what the rank had before."""


class PlacedArray(ABC):
    """An array where a rank computes, at an ``address`` that stays.

    ``shape`` is a tuple, ``dtype`` numpy's (or that of ml_dtypes), ``nbytes`` the size in bytes.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    nbytes: int
    address: int

    @abstractmethod
    def bind_input(self, binding: IOBinding, name: str) -> None:
        """Let a session read the input from here; whoever binds it keeps this array."""

    @abstractmethod
    def bind_output(self, binding: IOBinding, name: str) -> None:
        """Let a session write the output here; whoever binds it keeps this array."""

    @abstractmethod
    def put(self, array: Array) -> None:
        """Take over the values of a host array of the same shape and type."""

    @abstractmethod
    def get(self) -> Array:
        """Return the values: on the CPU the memory itself, elsewhere a copy on the host."""

    @abstractmethod
    def give(self, array: Array) -> None:
        """Copy the values into a host array of the same shape and type."""

    @abstractmethod
    def copy(self, other: PlacedArray) -> None:
        """Take over the values of an array of the same provider, shape and type."""

    @abstractmethod
    def zero(self) -> None:
        """Set every element to zero."""


class HostArray(PlacedArray):
    """An array in the host's memory: numpy's own. ``value`` is an OrtValue of that memory."""

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype, self.nbytes = array.shape, array.dtype, array.nbytes
        self.address = array.ctypes.data
        self.value, self._array = host_value(array), array

    def bind_input(self, binding: IOBinding, name: str) -> None:
        binding.bind_ortvalue_input(name, self.value)

    def bind_output(self, binding: IOBinding, name: str) -> None:
        binding.bind_ortvalue_output(name, self.value)

    def initialize(self, options: SessionOptions, name: str) -> None:
        """Let a session have these values for weight ``name``; it does not keep them."""
        options.add_initializer(name, self.value)

    def put(self, array: Array) -> None:
        if array is not self._array:
            self._array[...] = array

    def get(self) -> Array:
        return self._array

    def give(self, array: Array) -> None:
        np.copyto(array, self._array)

    def copy(self, other: PlacedArray) -> None:
        np.copyto(self._array, other.get())

    def zero(self) -> None:
        self._array.fill(0)


class DeviceArray(PlacedArray):
    """An array at ``address`` in the memory of a device, which ``owner`` holds.

    ``place`` is what ONNX Runtime's bindings call the device: its kind and its number.
    """

    def __init__(
        self,
        address: int,
        shape: Sequence[int],
        dtype: np.dtype[np.generic],
        owner: object,
        place: tuple[str, int],
    ) -> None:
        self.address, self.shape, self.dtype = address, tuple(shape), dtype
        self.nbytes = dtype.itemsize * math.prod(self.shape)
        self._owner = owner
        kind = ONNX_CODES.get(dtype.name, dtype)
        self._bound = (*place, kind, list(self.shape), address)

    def bind_input(self, binding: IOBinding, name: str) -> None:
        binding.bind_input(name, *self._bound)

    def bind_output(self, binding: IOBinding, name: str) -> None:
        binding.bind_output(name, *self._bound)

    def put(self, array: Array) -> None:
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError(
                f"expected {self.dtype} {self.shape}, got: {array.dtype} {array.shape}"
            )
        whole = np.ascontiguousarray(array)
        cudart.copy(self.address, whole.ctypes.data, self.nbytes)

    def get(self) -> Array:
        array = np.empty(self.shape, self.dtype)
        cudart.copy(array.ctypes.data, self.address, self.nbytes)
        return array

    def give(self, array: Array) -> None:
        if array.flags.c_contiguous:
            cudart.copy(array.ctypes.data, self.address, self.nbytes)
        else:
            array[...] = self.get()

    def copy(self, other: PlacedArray) -> None:
        cudart.copy(self.address, other.address, self.nbytes)

    def zero(self) -> None:
        cudart.clear(self.address, self.nbytes)


class Provider(ABC):
    """Where the sessions of a rank compute. ``name`` is that of ``--provider``.

    ``device`` and ``number`` are what ONNX Runtime's bindings call the place of its arrays.
    ``keeps_order`` says whether nodes run as in the plan, also those that are fused; ``fuses``
    whether the library has a kernel for several nodes of arithmetic at once.
    """

    name: str
    keeps_order = False
    fuses = False
    device = "cpu"
    number = 0

    @abstractmethod
    def sessions(self, *, graphs: bool = False) -> list[tuple[str, dict[str, str]]]:
        """Return the execution providers of a session; ``graphs`` asks for CUDA graphs.

        Raises `UserError` where there are none.
        """

    @abstractmethod
    def prepare(self, options: SessionOptions) -> None:
        """Set what a session's options need before the collectives are registered."""

    @abstractmethod
    def keep_low(self, options: SessionOptions, transient_bytes: int) -> None:
        """Set what lets a rank's session take less memory, in the same time.

        ``transient_bytes`` is what its tensors that come and go are predicted to take at a time.
        """

    @abstractmethod
    def opened(self, make: Callable[[], InferenceSession]) -> InferenceSession:
        """Return the session that ``make`` gives.

        Raises `UserError` unless ONNX Runtime computes where it was told to.
        """

    @abstractmethod
    def measure(self) -> MemoryMeter:
        """Begin to measure memory."""

    def told(self, error: Exception) -> str:
        """Return what a session says of its failure, in one line."""
        return one_line(error)

    def nodes_on_cpu(self, session: InferenceSession) -> int | None:
        """Return how many nodes ONNX Runtime left to the CPU, None where all are meant to be."""
        return None

    def used_bytes(self) -> int | None:
        """Return what all processes together take of the device now, None on the CPU."""
        return None

    @abstractmethod
    def reserve(self, sizes: Iterable[int]) -> None:
        """Make room for arrays of these sizes in bytes, which are made right after this."""

    def together(self) -> AbstractContextManager[None]:
        """Return a context in which copies and zeros of arrays need not be done one by one."""
        return nullcontext()

    @abstractmethod
    def place(self, array: Array) -> PlacedArray:
        """Return ``array`` where the rank computes: on the CPU itself, elsewhere a copy."""

    @abstractmethod
    def empty(self, shape: Sequence[int], dtype: np.dtype[np.generic]) -> PlacedArray:
        """Return an array whose values are not set."""

    def zeros(self, shape: Sequence[int], dtype: np.dtype[np.generic]) -> PlacedArray:
        """Return an array of zeros."""
        array = self.empty(shape, dtype)
        array.zero()
        return array

    @abstractmethod
    def fetch(self, value: OrtValue) -> Array:
        """Return an array of its own with the values of an output, an OrtValue."""


class CpuProvider(Provider):
    """The cores of this machine; arrays are numpy's memory."""

    name = "cpu"
    keeps_order = True
    fuses = True

    def sessions(self, *, graphs: bool = False) -> list[tuple[str, dict[str, str]]]:
        return [("CPUExecutionProvider", {})]

    def prepare(self, options: SessionOptions) -> None:
        """Leave a normalisation after an addition as it is (decision 49): ONNX Runtime's kernel for
        both moves 1.8 GB/s, where the two of them move 15."""
        key = "optimization.disable_specified_optimizers"
        options.add_session_config_entry(key, "SkipLayerNormFusion")

    def keep_low(self, options: SessionOptions, transient_bytes: int) -> None:
        """Let tensors live no longer than they are read, in one arena (decision 46)."""
        options.enable_mem_pattern = False
        options.enable_mem_reuse = False
        share_arena(options, transient_bytes)

    def opened(self, make: Callable[[], InferenceSession]) -> InferenceSession:
        with exact_blocks():
            return make()

    def measure(self) -> MemoryMeter:
        return PeakMemory()

    def reserve(self, sizes: Iterable[int]) -> None:
        """Nothing to do: the system gives what is asked for."""

    def place(self, array: Array) -> HostArray:
        return HostArray(array)

    def empty(self, shape: Sequence[int], dtype: np.dtype[np.generic]) -> HostArray:
        """Return an array at the start of a cache line."""
        size = dtype.itemsize * int(np.prod(shape))
        raw = np.empty(size + _ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % _ALIGNMENT
        return HostArray(raw[start : start + size].view(dtype).reshape(tuple(shape)))

    def fetch(self, value: OrtValue) -> Array:
        # The memory may be an input's, which is not kept for the output's sake.
        array = np.empty(tuple(value.shape()), dtype_of_code(value.element_type()))
        if array.nbytes:
            ctypes.memmove(array.ctypes.data, value.data_ptr(), array.nbytes)
        return array


CPU = CpuProvider()


def host_value(array: Array) -> OrtValue:
    """Return an OrtValue of the memory of ``array``, which it keeps."""
    from onnxruntime import OrtValue

    code = ONNX_CODES.get(name_of(array.dtype))
    if code is None:
        return OrtValue.ortvalue_from_numpy(array)
    raw = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    return OrtValue.ortvalue_from_numpy_with_onnx_type(raw, code)

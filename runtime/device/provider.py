"""Execution providers: CPU cores, or a CUDA device with arrays in its memory.

`provider_of` returns the provider of a job. Sessions are configured by ``sessions`` and
``prepare``; they read and write arrays made by ``place``, ``empty`` and ``zeros``.
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
from tensoropt.runtime.device.blocks import start_copy
from tensoropt.runtime.device.host_memory import exact_blocks, share_arena
from tensoropt.runtime.device.memory import PeakMemory
from tensoropt.runtime.device.strided import Part, strided_copies
from tensoropt.runtime.support.arena import CACHE_LINE_BYTES
from tensoropt.runtime.support.arithmetic import ON_CPU, Fusion
from tensoropt.runtime.support.dtypes import ONNX_CODES, Array, dtype_of_code, name_of
from tensoropt.runtime.support.errors import one_line

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, IOBinding, OrtValue, SessionOptions

__all__ = [
    "CPU",
    "Box",
    "CpuProvider",
    "DeviceArray",
    "HostArray",
    "MemoryMeter",
    "PlacedArray",
    "Provider",
    "host_value",
]


Box = tuple[slice, ...]
"""A box of an array: a slice per dimension, with a start and a stop."""


class MemoryMeter(Protocol):
    """Peak memory of a rank, on its provider, since the object was created."""

    def bytes(self) -> int | None:
        """Return the peak in bytes, None if it cannot be measured."""

    def added_bytes(self) -> int | None:
        """Return the peak minus the memory that the rank had at the start."""


class PlacedArray(ABC):
    """An array in the memory of a rank's provider, at a fixed ``address``.

    ``dtype`` is a type of numpy or ml_dtypes, ``nbytes`` the size in bytes.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    nbytes: int
    address: int

    @abstractmethod
    def bind_input(self, binding: IOBinding, name: str) -> None:
        """Bind the array as an input of a session; the caller must keep the array alive."""

    @abstractmethod
    def bind_output(self, binding: IOBinding, name: str) -> None:
        """Bind the array as an output of a session; the caller must keep the array alive."""

    @abstractmethod
    def put(self, array: Array) -> None:
        """Copy from a host array of the same shape and type."""

    @abstractmethod
    def get(self) -> Array:
        """Return the values: on the CPU the memory itself, on a device a copy on the host."""

    @abstractmethod
    def give(self, array: Array) -> None:
        """Copy into a host array of the same shape and type."""

    @abstractmethod
    def copy(self, other: PlacedArray) -> None:
        """Copy from an array of the same provider, shape and type."""

    @abstractmethod
    def copy_box(self, to: Box, other: PlacedArray, source: Box) -> None:
        """Copy box ``source`` of an array of the same provider and type to box ``to``."""

    @abstractmethod
    def first(self, count: int) -> PlacedArray:
        """Return the first ``count`` elements of the first dimension, in the same memory."""

    @abstractmethod
    def zero(self) -> None:
        """Set every element to zero."""


class HostArray(PlacedArray):
    """A numpy array in the host's memory. ``value`` is an OrtValue of the same memory."""

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype, self.nbytes = array.shape, array.dtype, array.nbytes
        self.address = array.ctypes.data
        self.value, self._array = host_value(array), array

    def bind_input(self, binding: IOBinding, name: str) -> None:
        binding.bind_ortvalue_input(name, self.value)

    def bind_output(self, binding: IOBinding, name: str) -> None:
        binding.bind_ortvalue_output(name, self.value)

    def initialize(self, options: SessionOptions, name: str) -> None:
        """Use these values for weight ``name`` of a session; it does not keep them alive."""
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

    def copy_box(self, to: Box, other: PlacedArray, source: Box) -> None:
        self._array[to] = other.get()[source]

    def first(self, count: int) -> HostArray:
        return HostArray(self._array[:count])

    def zero(self) -> None:
        self._array.fill(0)


class DeviceArray(PlacedArray):
    """An array at ``address`` in the memory of a device, owned by ``owner``.

    ``place`` is the device in ONNX Runtime's bindings: its kind and its number.
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
        self._owner, self._place = owner, place
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

    def copy_box(self, to: Box, other: PlacedArray, source: Box) -> None:
        parts = Part.from_box(self.shape, to), Part.from_box(other.shape, source)
        for one in strided_copies(*parts, self.dtype.itemsize):
            start_copy(self.address, other.address, one)
        cudart.wait()

    def first(self, count: int) -> DeviceArray:
        return DeviceArray(self.address, (count, *self.shape[1:]), self.dtype, self, self._place)

    def zero(self) -> None:
        cudart.clear(self.address, self.nbytes)


class Provider(ABC):
    """Execution of a rank's sessions. ``name`` is the value of ``--provider``.

    ``device`` and ``number`` are the place of its arrays in ONNX Runtime's bindings.
    ``keeps_order`` is set if nodes, also fused nodes, run in the order of the plan; ``own_kernels``
    if the library has kernels of training for it: convolutions, products, and gradients of weights.
    ``fusion`` says which elementwise nodes its kernel fuses. ``slow_fusions`` are the optimizers of
    ONNX Runtime that replace nodes by slower ones.
    """

    name: str
    keeps_order = False
    own_kernels = False
    fusion: Fusion
    slow_fusions: tuple[str, ...] = ()
    device = "cpu"
    number = 0

    @abstractmethod
    def sessions(self, *, graphs: bool = False) -> list[tuple[str, dict[str, str]]]:
        """Return the execution providers of a session; ``graphs`` enables CUDA graphs.

        Raises `UserError` if CUDA graphs are not available.
        """

    @abstractmethod
    def prepare(self, options: SessionOptions) -> None:
        """Set a session's options before the collectives are registered."""

    @abstractmethod
    def keep_low(self, options: SessionOptions, transient_bytes: int) -> None:
        """Set the options that reduce a session's memory without slowing it down.

        ``transient_bytes`` is the predicted peak of its transient tensors.
        """

    @abstractmethod
    def open_session(self, make: Callable[[], InferenceSession]) -> InferenceSession:
        """Return the session that ``make`` creates.

        Raises `UserError` unless ONNX Runtime computes on this provider.
        """

    @abstractmethod
    def measure(self) -> MemoryMeter:
        """Start to measure memory."""

    def explain(self, error: Exception) -> str:
        """Return a session's error in one line."""
        return one_line(error)

    def nodes_on_cpu(self, session: InferenceSession) -> int | None:
        """Return the number of nodes left to the CPU; None if all of them are meant to run there.

        Such nodes have no kernel for the provider.
        """
        return None

    def used_bytes(self) -> int | None:
        """Return the bytes of the device in use by all processes, None on the CPU."""
        return None

    @abstractmethod
    def reserve(self, sizes: Iterable[int]) -> None:
        """Make room for arrays of these sizes in bytes, which are allocated right after."""

    def defer_waits(self) -> AbstractContextManager[None]:
        """Return a context in which array copies and fills are waited for once, at the end."""
        return nullcontext()

    @abstractmethod
    def place(self, array: Array) -> PlacedArray:
        """Return ``array`` in the provider's memory: on the CPU itself, on a device a copy."""

    @abstractmethod
    def empty(self, shape: Sequence[int], dtype: np.dtype[np.generic]) -> PlacedArray:
        """Return an uninitialised array."""

    def zeros(self, shape: Sequence[int], dtype: np.dtype[np.generic]) -> PlacedArray:
        """Return an array of zeros."""
        array = self.empty(shape, dtype)
        array.zero()
        return array

    @abstractmethod
    def view(self, value: OrtValue) -> PlacedArray:
        """Return the array of an output, an OrtValue: on the CPU a copy, on a device itself."""

    def fetch(self, value: OrtValue) -> Array:
        """Return a copy of an output, an OrtValue, on the host."""
        return self.view(value).get()


class CpuProvider(Provider):
    """The cores of this machine; arrays are numpy arrays."""

    name = "cpu"
    keeps_order = True
    own_kernels = True
    fusion = ON_CPU
    # An addition with the normalisation after it (decision 49): ONNX Runtime's fused kernel moves
    # 1.8 GB/s, the two separate kernels 15 GB/s.
    slow_fusions = ("SkipLayerNormFusion",)

    def sessions(self, *, graphs: bool = False) -> list[tuple[str, dict[str, str]]]:
        return [("CPUExecutionProvider", {})]

    def prepare(self, options: SessionOptions) -> None:
        """Do nothing: the defaults are those of the CPU."""

    def keep_low(self, options: SessionOptions, transient_bytes: int) -> None:
        """Free tensors after their last use, and allocate from one arena (decision 46)."""
        options.enable_mem_pattern = False
        options.enable_mem_reuse = False
        share_arena(options, transient_bytes)

    def open_session(self, make: Callable[[], InferenceSession]) -> InferenceSession:
        with exact_blocks():
            return make()

    def measure(self) -> MemoryMeter:
        return PeakMemory()

    def reserve(self, sizes: Iterable[int]) -> None:
        """Do nothing: the system allocates the requested size."""

    def place(self, array: Array) -> HostArray:
        return HostArray(array)

    def empty(self, shape: Sequence[int], dtype: np.dtype[np.generic]) -> HostArray:
        """Return an uninitialised array, aligned to a cache line."""
        return _aligned(np.empty, shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: np.dtype[np.generic]) -> HostArray:
        """Return an array of zeros, aligned to a cache line.

        The pages of a large array take memory only once they are written.
        """
        return _aligned(np.zeros, shape, dtype)

    def view(self, value: OrtValue) -> HostArray:
        return HostArray(self.fetch(value))

    def fetch(self, value: OrtValue) -> Array:
        # The memory may belong to an input, which the output does not keep alive.
        array = np.empty(tuple(value.shape()), dtype_of_code(value.element_type()))
        if array.nbytes:
            ctypes.memmove(array.ctypes.data, value.data_ptr(), array.nbytes)
        return array


def _aligned(
    make: Callable[..., Array], shape: Sequence[int], dtype: np.dtype[np.generic]
) -> HostArray:
    """Return an array in the memory that ``make`` allocates, aligned to a cache line."""
    size = dtype.itemsize * math.prod(shape)
    raw = make(size + CACHE_LINE_BYTES, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE_BYTES
    return HostArray(raw[start : start + size].view(dtype).reshape(tuple(shape)))


CPU = CpuProvider()


def host_value(array: Array) -> OrtValue:
    """Return an OrtValue that shares the memory of ``array`` and keeps it alive."""
    from onnxruntime import OrtValue

    code = ONNX_CODES.get(name_of(array.dtype))
    if code is None:
        return OrtValue.ortvalue_from_numpy(array)
    raw = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    return OrtValue.ortvalue_from_numpy_with_onnx_type(raw, code)

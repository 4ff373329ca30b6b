"""Execution on a CUDA device: requirements, device assignment, and options for ONNX Runtime.

If the environment variable ``TENSOROPT_STAND_IN`` names a folder of stand-ins for NCCL and the
CUDA runtime, everything runs on host memory and the CPU, for machines without a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import io
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from tensoropt.runtime.device import cudart
from tensoropt.runtime.device.blocks import DeviceBlock
from tensoropt.runtime.device.provider import DeviceArray, MemoryMeter, Provider
from tensoropt.runtime.ops import library
from tensoropt.runtime.support.arithmetic import ON_GPU
from tensoropt.runtime.support.dtypes import ONNX_CODES, Array, dtype_of_code
from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.runtime.support.onnx_runtime import installation_fault

if TYPE_CHECKING:
    from mpi4py import MPI
    from onnxruntime import InferenceSession, OrtValue, SessionOptions

__all__ = [
    "CudaProvider",
    "StandInProvider",
    "check_cuda",
    "cuda_facts",
    "device_of",
    "open_cuda",
    "shown_as",
    "stand_in",
]

_CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
_SILENT, _WARNINGS = 4, 2  # severities of ONNX Runtime's log; the second is its default
_NO_MEMORY = re.compile(r"failed to allocate memory|out of memory", re.IGNORECASE)
_STAND_INS = {
    "TENSOROPT_NCCL": "libnccl.so.2",
    "TENSOROPT_CUDART": "libcudart.so.13",
    "TENSOROPT_NVRTC": "libnvrtc.so.13",
    "TENSOROPT_CUDA_DRIVER": "libnvrtc.so.13",
    "TENSOROPT_CUDNN_ATTENTION": "libtensoropt_cudnn.so",
}
_GRAIN = 256  # bytes: ONNX Runtime's arenas round sizes up to this
_SHARING_NCCL = (2, 30)  # first version that lets ranks share a device
_SHARING_BLOCKS = "4"  # per rank: kernels that wait for each other must all fit on the device


class CudaProvider(Provider):
    """CUDA device ``number`` among the devices visible to this process."""

    name = "cuda"
    device = "cuda"
    fusion = ON_GPU

    def __init__(self, number: int) -> None:
        self.number = number
        self._placed: WeakSet[DeviceArray] = WeakSet()

    def sessions(self, *, graphs: bool = False) -> list[tuple[str, dict[str, str]]]:
        options = {
            "device_id": str(self.number),
            "arena_extend_strategy": "kSameAsRequested",  # powers of two may waste up to half
            "do_copy_in_default_stream": "1",  # copies are ordered with kernels and collectives
            "use_tf32": "1",  # as device descriptions assume for float32 products
            "enable_cuda_graph": str(int(graphs)),
        }
        return [(_CUDA, options), (_CPU, {})]

    def prepare(self, options: SessionOptions) -> None:
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        options.enable_mem_pattern = False  # it would allocate a second block (decision 14)

    def keep_low(self, options: SessionOptions, transient_bytes: int) -> None:
        """Set nothing: a device's arena needs no more options."""

    def open_session(self, make: Callable[[], InferenceSession]) -> InferenceSession:
        """Raise `UserError` if ONNX Runtime fell back from CUDA, which only its log reports."""
        with _capture_stderr() as log:
            session = make()
        if session.get_providers()[0] != _CUDA:
            raise UserError(f"ONNX Runtime cannot use CUDA here: {_reason(log[0])}")
        return session

    def explain(self, error: Exception) -> str:
        """Add the device that is out of memory; ONNX Runtime only reports the size requested."""
        text = one_line(error)
        where = f"GPU {shown_as(self.number)}: " if _NO_MEMORY.search(text) else ""
        return where + text

    def measure(self) -> MemoryMeter:
        return _DeviceMemory(self)

    def nodes_on_cpu(self, session: InferenceSession) -> int | None:
        parts = session.get_provider_graph_assignment_info()
        return sum(len(part.get_nodes()) for part in parts if part.ep_name != _CUDA)

    def used_bytes(self) -> int | None:
        used = library.device_used_bytes(self.number)
        return used if used >= 0 else None

    def placed_bytes(self) -> int:
        """Return the size of the live arrays on the device."""
        return sum(array.nbytes for array in self._placed)

    def reserve(self, sizes: Iterable[int]) -> None:
        """Allocate one block and release it to the arena that arrays are allocated from.

        Separate blocks would each be rounded up to pages of the device, which are megabytes.
        """
        total = sum(-(-size // _GRAIN) * _GRAIN for size in sizes)
        if total:
            self.empty((total,), np.dtype(np.uint8))

    def defer_waits(self) -> contextlib.AbstractContextManager[None]:
        return cudart.defer_waits()

    def place(self, array: Array) -> DeviceArray:
        placed = self.empty(array.shape, array.dtype)
        placed.put(array)
        return placed

    def empty(self, shape: Sequence[int], dtype: np.dtype[np.generic]) -> DeviceArray:
        from onnxruntime import OrtValue

        kind = ONNX_CODES.get(dtype.name, dtype)
        make = OrtValue.ortvalue_from_shape_and_type
        try:
            value = make(list(shape), kind, self.device, self.number)
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            raise self._no_memory(dtype.itemsize * math.prod(shape), error) from None
        return self._track(value.data_ptr(), shape, dtype, value)

    def block(self, size: int) -> DeviceBlock:
        """Return a separate block outside ONNX Runtime's arenas. Raises `UserError`."""
        try:
            return DeviceBlock(size)
        except UserError as error:
            raise self._no_memory(size, error) from None

    def array_in(
        self, block: DeviceBlock, start: int, shape: Sequence[int], dtype: np.dtype[np.generic]
    ) -> DeviceArray:
        """Return the array at byte ``start`` of a block; it keeps the block alive."""
        return self._track(block.address + start, shape, dtype, block)

    def _track(
        self, address: int, shape: Sequence[int], dtype: np.dtype[np.generic], owner: object
    ) -> DeviceArray:
        """Return an array that `placed_bytes` counts while it is alive."""
        array = DeviceArray(address, shape, dtype, owner, (self.device, self.number))
        self._placed.add(array)
        return array

    def _no_memory(self, size: int, error: Exception) -> UserError:
        return UserError(f"GPU {shown_as(self.number)}: no {size} bytes: {one_line(error)}")

    def view(self, value: OrtValue) -> DeviceArray:
        dtype, place = dtype_of_code(value.element_type()), (self.device, self.number)
        return DeviceArray(value.data_ptr(), value.shape(), dtype, value, place)


class StandInProvider(CudaProvider):
    """Stand-ins for NCCL and the CUDA runtime: device code on host memory, without a GPU."""

    device = "cpu"

    def sessions(self, *, graphs: bool = False) -> list[tuple[str, dict[str, str]]]:
        if graphs:
            raise UserError("the stand-in for CUDA has no graphs")
        return [(_CPU, {})]

    def prepare(self, options: SessionOptions) -> None:
        super().prepare(options)
        options.add_session_config_entry("tensoropt.stand_in", "1")

    def open_session(self, make: Callable[[], InferenceSession]) -> InferenceSession:
        return make()

    def nodes_on_cpu(self, session: InferenceSession) -> None:
        """Return None: all nodes are meant to run on the CPU."""


class _DeviceMemory:
    """Peak memory of sessions on a device, with the arrays bound to them.

    Without collectives nothing reports the peak of ONNX Runtime's arenas. Then it is the increase
    of the device's used memory, which is exact if arenas do not shrink and no other process runs.
    """

    def __init__(self, provider: CudaProvider) -> None:
        self._provider, self._before = provider, provider.used_bytes()

    def bytes(self) -> int | None:
        peak = library.arena_peak_bytes()
        if peak >= 0:
            return peak + self._provider.placed_bytes()
        now = self._provider.used_bytes()
        return None if now is None or self._before is None else now - self._before

    def added_bytes(self) -> int | None:
        return self.bytes()


@contextlib.contextmanager
def _capture_stderr() -> Iterator[list[str]]:
    """Capture stderr, also of C++ code, as the single text of the list, set at the end."""
    log: list[str] = []
    before = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield log
        finally:
            os.dup2(before, 2)
            os.close(before)
            aside.seek(0)
            log.append(aside.read().decode(errors="replace"))


def _reason(log: str) -> str:
    """Return the reason in ONNX Runtime's log."""
    found = re.findall(r"\[ONNXRuntimeError\] : \d+ : \w+ : (.*)", log)
    lines = found or log.splitlines() or ["its log has no reason"]
    return re.sub(r"\x1b\[[\d;]*m", "", lines[0]).strip()


def stand_in() -> Path | None:
    """Return the folder of stand-ins, None if real CUDA is used."""
    found = os.environ.get("TENSOROPT_STAND_IN")
    return Path(found) if found else None


def shown_as(number: int) -> str:
    """Return the machine's name for device ``number`` among those visible to this process."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return shown[number].strip() if any(shown) and number < len(shown) else str(number)


def check_cuda() -> None:
    """Raise `UserError` for faults that show without touching a device."""
    folder = stand_in()
    if folder is not None:
        for name in _STAND_INS.values():
            if not (folder / name).is_file():
                raise UserError(f"TENSOROPT_STAND_IN: expected {folder / name}, which is missing")
        return
    fault = installation_fault(gpu=True)
    if fault is not None:
        raise UserError(f"provider cuda: {fault}")
    import onnxruntime

    if _CUDA not in onnxruntime.get_available_providers():
        raise UserError(
            f"provider cuda: ONNX Runtime {onnxruntime.__version__} was built without CUDA"
        )


def open_cuda(comm: MPI.Comm, *, share_gpus: bool) -> Provider:
    """Return this rank's device; ``comm`` has all ranks. Raises `UserError`."""
    rank, shown = _neighbours(comm)  # collective, so before a rank can fail
    facts = cuda_facts()
    if stand_in() is None:
        _allocate_as_asked()
    devices = len(facts["gpus"])
    number = device_of(rank, shown, devices, share_gpus=share_gpus)
    if share_gpus:
        _allow_sharing(facts["nccl"], len(shown), devices)
    cudart.use_device(number)
    return CudaProvider(number) if stand_in() is None else StandInProvider(number)


def cuda_facts() -> library.Cuda:
    """Return the facts of CUDA in this process, with at least one GPU. Raises `UserError`."""
    check_cuda()
    folder = stand_in()
    if folder is None:
        _preload()
    else:
        os.environ.update({name: str(folder / file) for name, file in _STAND_INS.items()})
    facts = library.cuda()
    if "error" in facts:
        raise UserError(f"provider cuda: {facts['error']}")
    return facts


def _preload() -> None:
    """Load the CUDA libraries and NCCL from their Python packages, if installed."""
    import onnxruntime

    with contextlib.redirect_stdout(io.StringIO()):  # it prints the libraries that are missing
        onnxruntime.preload_dlls()
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "nccl" / "lib" / "libnccl.so.2"
        if path.is_file() and "TENSOROPT_NCCL" not in os.environ:
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def _allocate_as_asked() -> None:
    """Let the arena of arrays grow by the requested sizes, not by powers of two.

    The arena belongs to ONNX Runtime's Python module, not to a session; it has no other setting.
    """
    import onnxruntime
    from onnxruntime.capi import _pybind_state as state

    if hasattr(state, "set_arena_extend_strategy"):
        onnxruntime.set_default_logger_severity(_SILENT)  # suppresses a deprecation warning
        state.set_arena_extend_strategy(state.ArenaExtendStrategy.kSameAsRequested)
        onnxruntime.set_default_logger_severity(_WARNINGS)


def _allow_sharing(version: str, ranks: int, devices: int) -> None:
    """Let NCCL, which has not started yet, share devices among ranks. Raises `UserError`."""
    if tuple(map(int, version.split(".")[:2])) < _SHARING_NCCL:
        needed = ".".join(map(str, _SHARING_NCCL))
        raise UserError(f"--share-gpus: expected NCCL {needed} or newer, got: {version}")
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    if ranks > devices:
        os.environ.setdefault("NCCL_MAX_CTAS", _SHARING_BLOCKS)


def _neighbours(comm: MPI.Comm) -> tuple[int, list[str | None]]:
    """Return this rank's number on its machine, and the devices visible to each rank there."""
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    shown = here.allgather(os.environ.get("CUDA_VISIBLE_DEVICES"))
    rank = int(here.rank)
    here.Free()
    return rank, shown


def device_of(
    rank: int, shown: Sequence[str | None], devices: int, *, share_gpus: bool = False
) -> int:
    """Return the number of a rank's device; raises `UserError` if another rank would use it, too.

    ``rank`` counts on this machine. ``shown`` is CUDA_VISIBLE_DEVICES of each rank there, set by
    the launcher, and ``devices`` the number of devices visible to this rank. Ranks take devices
    round-robin, unless each rank sees one device of its own.
    """
    ranks = len(shown)
    if ranks <= devices or share_gpus:
        return rank % devices
    if devices == 1 and None not in shown and len(set(shown)) == ranks:
        return 0
    raise UserError(
        f"provider cuda: {ranks} ranks on a machine with {devices} GPUs, expected a GPU for each "
        "rank (for tests, --share-gpus lets them share)"
    )

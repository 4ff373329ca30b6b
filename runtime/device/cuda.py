"""A rank on a CUDA device: what must be there, which device is its own, what ONNX Runtime is told.

With the environment variable ``TENSOROPT_STAND_IN`` naming a folder of stand-ins for NCCL and the
CUDA runtime, all of it runs on host memory and the CPU instead: for machines without a GPU.
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
_GRAIN = 256  # bytes: what ONNX Runtime's arenas round sizes up to
_SHARING_NCCL = (2, 30)  # the first that lets ranks share a device
_SHARING_BLOCKS = "4"  # a rank's: kernels that wait for one another must all fit on the device


class CudaProvider(Provider):
    """CUDA device ``number`` of those that this process sees."""

    name = "cuda"
    device = "cuda"

    def __init__(self, number: int) -> None:
        self.number = number
        self._placed: WeakSet[DeviceArray] = WeakSet()

    def sessions(self, *, graphs: bool = False) -> list[tuple[str, dict[str, str]]]:
        options = {
            "device_id": str(self.number),
            "arena_extend_strategy": "kSameAsRequested",  # powers of two would take up to twice
            "do_copy_in_default_stream": "1",  # no copy overtakes a kernel or a collective
            "use_tf32": "1",  # as device descriptions count float32 products
            "enable_cuda_graph": str(int(graphs)),
        }
        return [(_CUDA, options), (_CPU, {})]

    def prepare(self, options: SessionOptions) -> None:
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        options.enable_mem_pattern = False  # a second block for all tensors (decision 14)

    def keep_low(self, options: SessionOptions, transient_bytes: int) -> None:
        """Nothing more to set."""

    def opened(self, make: Callable[[], InferenceSession]) -> InferenceSession:
        """Refuse a session that ONNX Runtime made without CUDA: it says so in its log only."""
        with _stderr_kept() as said:
            session = make()
        if session.get_providers()[0] != _CUDA:
            raise UserError(f"ONNX Runtime cannot use CUDA here: {_reason(said[0])}")
        return session

    def told(self, error: Exception) -> str:
        """Say which device has no memory left: ONNX Runtime says only how much it wanted."""
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
        """Return the size of the arrays that are held on the device."""
        return sum(array.nbytes for array in self._placed)

    def reserve(self, sizes: Iterable[int]) -> None:
        """Take one block, and give it to the arena that arrays come from.

        One block each would be rounded up to pages of the device, of megabytes.
        """
        total = sum(-(-size // _GRAIN) * _GRAIN for size in sizes)
        if total:
            self.empty((total,), np.dtype(np.uint8))

    def together(self) -> contextlib.AbstractContextManager[None]:
        return cudart.together()

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
        return self._held(value.data_ptr(), shape, dtype, value)

    def block(self, size: int) -> DeviceBlock:
        """Return memory of its own, outside ONNX Runtime's arenas. Raises `UserError`."""
        try:
            return DeviceBlock(size)
        except UserError as error:
            raise self._no_memory(size, error) from None

    def within(
        self, block: DeviceBlock, start: int, shape: Sequence[int], dtype: np.dtype[np.generic]
    ) -> DeviceArray:
        """Return the array at byte ``start`` of a block, which it keeps."""
        return self._held(block.address + start, shape, dtype, block)

    def _held(
        self, address: int, shape: Sequence[int], dtype: np.dtype[np.generic], owner: object
    ) -> DeviceArray:
        array = DeviceArray(address, shape, dtype, owner, (self.device, self.number))
        self._placed.add(array)
        return array

    def _no_memory(self, size: int, error: Exception) -> UserError:
        return UserError(f"GPU {shown_as(self.number)}: no {size} bytes: {one_line(error)}")

    def fetch(self, value: OrtValue) -> Array:
        dtype, place = dtype_of_code(value.element_type()), (self.device, self.number)
        return DeviceArray(value.data_ptr(), value.shape(), dtype, value, place).get()


class StandInProvider(CudaProvider):
    """The stand-ins for NCCL and the CUDA runtime: device code on host memory, nothing on a GPU."""

    device = "cpu"

    def sessions(self, *, graphs: bool = False) -> list[tuple[str, dict[str, str]]]:
        if graphs:
            raise UserError("the stand-in for CUDA has no graphs")
        return [(_CPU, {})]

    def prepare(self, options: SessionOptions) -> None:
        super().prepare(options)
        options.add_session_config_entry("tensoropt.stand_in", "1")

    def opened(self, make: Callable[[], InferenceSession]) -> InferenceSession:
        return make()

    def nodes_on_cpu(self, session: InferenceSession) -> None:
        """Return nothing: all of them are meant to be there."""


class _DeviceMemory:
    """The most that sessions took of a device, and the arrays that they are bound to.

    Without collectives nothing says how full ONNX Runtime's arenas were: then what the device has
    less of than before, which is right where the arenas do not shrink and nobody else is there.
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
def _stderr_kept() -> Iterator[list[str]]:
    """Keep what is written to stderr meanwhile, in C++ too, as the one text of a list."""
    said: list[str] = []
    before = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(before, 2)
            os.close(before)
            aside.seek(0)
            said.append(aside.read().decode(errors="replace"))


def _reason(said: str) -> str:
    """Return why, from ONNX Runtime's log."""
    found = re.findall(r"\[ONNXRuntimeError\] : \d+ : \w+ : (.*)", said)
    lines = found or said.splitlines() or ["it does not say why"]
    return re.sub(r"\x1b\[[\d;]*m", "", lines[0]).strip()


def stand_in() -> Path | None:
    """Return the folder of stand-ins, None where CUDA means CUDA."""
    found = os.environ.get("TENSOROPT_STAND_IN")
    return Path(found) if found else None


def shown_as(number: int) -> str:
    """Return what the machine calls device ``number`` of those that this process is shown."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return shown[number].strip() if any(shown) and number < len(shown) else str(number)


def check_cuda() -> None:
    """Raise `UserError` for what can be found without touching a device."""
    folder = stand_in()
    if folder is not None:
        for name in ("libnccl.so.2", "libcudart.so.13"):
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
    """Return this rank's device; ``comm`` is that of all ranks. Raises `UserError`."""
    rank, shown = _neighbours(comm)  # of all ranks, before one can fail
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
    """Return what this process is shown of CUDA, with at least one GPU. Raises `UserError`."""
    check_cuda()
    folder = stand_in()
    if folder is None:
        _preload()
    else:
        os.environ["TENSOROPT_NCCL"] = str(folder / "libnccl.so.2")
        os.environ["TENSOROPT_CUDART"] = str(folder / "libcudart.so.13")
    facts = library.cuda()
    if "error" in facts:
        raise UserError(f"provider cuda: {facts['error']}")
    return facts


def _preload() -> None:
    """Load the CUDA libraries and NCCL from their packages, where they are installed as such."""
    import onnxruntime

    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does not find
        onnxruntime.preload_dlls()
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "nccl" / "lib" / "libnccl.so.2"
        if path.is_file() and "TENSOROPT_NCCL" not in os.environ:
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def _allocate_as_asked() -> None:
    """Let the arena that arrays come from grow by what is asked for, not by powers of two.

    It is that of ONNX Runtime's Python module, not of a session, and has no other setting.
    """
    import onnxruntime
    from onnxruntime.capi import _pybind_state as state

    if hasattr(state, "set_arena_extend_strategy"):
        onnxruntime.set_default_logger_severity(_SILENT)  # it warns that there is a newer setting
        state.set_arena_extend_strategy(state.ArenaExtendStrategy.kSameAsRequested)
        onnxruntime.set_default_logger_severity(_WARNINGS)


def _allow_sharing(version: str, ranks: int, devices: int) -> None:
    """Tell NCCL, which has not started yet, that ranks share devices. Raises `UserError`."""
    if tuple(map(int, version.split(".")[:2])) < _SHARING_NCCL:
        needed = ".".join(map(str, _SHARING_NCCL))
        raise UserError(f"--share-gpus: expected NCCL {needed} or newer, got: {version}")
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    if ranks > devices:
        os.environ.setdefault("NCCL_MAX_CTAS", _SHARING_BLOCKS)


def _neighbours(comm: MPI.Comm) -> tuple[int, list[str | None]]:
    """Return this rank's number on its machine, and which devices each rank there is shown."""
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    shown = here.allgather(os.environ.get("CUDA_VISIBLE_DEVICES"))
    rank = int(here.rank)
    here.Free()
    return rank, shown


def device_of(
    rank: int, shown: Sequence[str | None], devices: int, *, share_gpus: bool = False
) -> int:
    """Return the number of a rank's device; raises `UserError` where it would be another's too.

    ``rank`` counts on this machine, ``shown`` is what the launcher lets each rank there see
    (CUDA_VISIBLE_DEVICES), and ``devices`` how many that are for this one. Ranks take devices in
    turn, unless each was shown one of its own.
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

"""Collectives called by the program itself, as in the loops of nccl-tests: over MPI, or with NCCL.

Both take arrays of a provider, split into equal parts in memory, as by a collective along dimension
0. NCCL's calls only start on a stream; ``wait`` returns when all of them have finished.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

from tensoropt.runtime.device import cudart
from tensoropt.runtime.device.provider import PlacedArray, Provider

__all__ = ["Direct", "MpiDirect", "NcclDirect", "direct_for"]

# ncclDataType_t and ncclRedOp_t of nccl.h.
_TYPES = {"int8": 0, "int32": 2, "int64": 4, "float16": 6, "float32": 7, "bfloat16": 9}
_REDUCTIONS = {"sum": 0, "max": 2, "min": 3}
_ID_BYTES = 128
_NON_BLOCKING = 1  # cudaStreamNonBlocking, like ONNX Runtime's own stream

Group = Sequence[int]


class Direct(Protocol):
    """Caller of collectives. ``stream`` is their CUDA stream, None without CUDA."""

    stream: int | None

    def supports(self, kind: str, dtype: str) -> bool:
        """Return whether :meth:`call` takes a collective of this type."""
        ...

    def call(
        self, kind: str, group: Group, x: PlacedArray, y: PlacedArray, reduction: str = "sum"
    ) -> None:
        """Call a collective of x into y on the ranks of ``group``, which includes this rank."""
        ...

    def wait(self) -> None:
        """Return when all calls have finished."""
        ...


class MpiDirect:
    """Calls MPI, on arrays in the host's memory."""

    stream = None

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._groups: dict[tuple[int, ...], Any] = {}

    def supports(self, kind: str, dtype: str) -> bool:
        return dtype in ("float32", "int32", "int64") or kind in ("AllGather", "AllToAll")

    def call(
        self, kind: str, group: Group, x: PlacedArray, y: PlacedArray, reduction: str = "sum"
    ) -> None:
        from mpi4py import MPI

        comm, sent, received = self._group(group), x.get(), y.get()
        if kind in ("AllReduce", "ReduceScatter"):
            operation = getattr(MPI, reduction.upper())
            reduce = comm.Allreduce if kind == "AllReduce" else comm.Reduce_scatter_block
            reduce(sent, received, operation)
            return
        raw = sent.reshape(-1).view("u1"), received.reshape(-1).view("u1")
        (comm.Allgather if kind == "AllGather" else comm.Alltoall)(*raw)

    def wait(self) -> None:
        """Do nothing: every call has returned with its result."""

    def _group(self, group: Group) -> Any:
        key = tuple(group)
        if key not in self._groups:
            held = self._comm.Get_group().Incl(list(group))
            self._groups[key] = self._comm.Create_group(held)
        return self._groups[key]


class _Id(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = (("internal", ctypes.c_char * _ID_BYTES),)


class NcclDirect:
    """Calls NCCL on its own stream."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._nccl = cudart.load_library("TENSOROPT_NCCL", ["libnccl.so.2"])
        self._cuda = cudart.load_library("TENSOROPT_CUDART", cudart.NAMES)
        stream = ctypes.c_void_p()
        _check(
            "cudaStreamCreateWithFlags",
            self._cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), _NON_BLOCKING),
        )
        self.stream = stream.value
        self._groups: dict[tuple[int, ...], ctypes.c_void_p] = {}

    def supports(self, kind: str, dtype: str) -> bool:
        return dtype in _TYPES

    def call(
        self, kind: str, group: Group, x: PlacedArray, y: PlacedArray, reduction: str = "sum"
    ) -> None:
        where = self._group(group), ctypes.c_void_p(self.stream)
        addresses = ctypes.c_void_p(x.address), ctypes.c_void_p(y.address)
        element, items = ctypes.c_int(_TYPES[x.dtype.name]), x.nbytes // x.dtype.itemsize
        if kind == "AllToAll":
            self._exchange(len(group), addresses, items, x.dtype.itemsize, element, where)
            return
        count = items // len(group) if kind == "ReduceScatter" else items
        operation = () if kind == "AllGather" else (ctypes.c_int(_REDUCTIONS[reduction]),)
        function = getattr(self._nccl, f"nccl{kind}")
        _check(kind, function(*addresses, ctypes.c_size_t(count), element, *operation, *where))

    def wait(self) -> None:
        code = self._cuda.cudaStreamSynchronize(ctypes.c_void_p(self.stream))
        _check("cudaStreamSynchronize", code)

    def _exchange(
        self,
        ranks: int,
        addresses: tuple[ctypes.c_void_p, ctypes.c_void_p],
        items: int,
        itemsize: int,
        element: ctypes.c_int,
        where: tuple[ctypes.c_void_p, ctypes.c_void_p],
    ) -> None:
        """Send part r of x to rank r, and receive its part into part r of y."""
        count, step = ctypes.c_size_t(items // ranks), items // ranks * itemsize
        source, target = (int(address.value or 0) for address in addresses)
        _check("ncclGroupStart", self._nccl.ncclGroupStart())
        for peer in range(ranks):
            sent, received = (ctypes.c_void_p(a + peer * step) for a in (source, target))
            stream, other = where[1], ctypes.c_int(peer)
            _check("ncclSend", self._nccl.ncclSend(sent, count, element, other, where[0], stream))
            _check(
                "ncclRecv", self._nccl.ncclRecv(received, count, element, other, where[0], stream)
            )
        _check("ncclGroupEnd", self._nccl.ncclGroupEnd())

    def _group(self, group: Group) -> ctypes.c_void_p:
        key = tuple(group)
        if key not in self._groups:
            self._groups[key] = self._communicator(group)
        return self._groups[key]

    def _communicator(self, group: Group) -> ctypes.c_void_p:
        comm = self._comm.Create_group(self._comm.Get_group().Incl(list(group)))
        unique, made = _Id(), ctypes.c_void_p()
        if comm.rank == 0:
            _check("ncclGetUniqueId", self._nccl.ncclGetUniqueId(ctypes.byref(unique)))
        raw = comm.bcast(bytes(unique))  # the field's value would end at the first zero
        ctypes.memmove(ctypes.byref(unique), raw, _ID_BYTES)
        code = self._nccl.ncclCommInitRank(ctypes.byref(made), comm.size, unique, comm.rank)
        _check("ncclCommInitRank", code)
        return made


def direct_for(provider: Provider, comm: Any) -> Direct:
    """Return the caller of collectives on the arrays of a provider."""
    return MpiDirect(comm) if provider.name == "cpu" else NcclDirect(comm)


def _check(what: str, code: int) -> None:
    if code:
        raise RuntimeError(f"{what} gave {code}")

"""Run on four ranks under mpiexec: the stand-in of NCCL itself, called as C, against numpy.

Rank 0 prints a JSON list of what went wrong on any rank.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from mpi4py import MPI

COMM = MPI.COMM_WORLD
FOLDER = Path(sys.argv[1])
NCCL = ctypes.CDLL(str(FOLDER / "libnccl.so.2"))
CUDART = ctypes.CDLL(str(FOLDER / "libcudart.so.13"))
NCCL.ncclGetErrorString.restype = NCCL.ncclGetLastError.restype = ctypes.c_char_p
TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
TYPES.append("bfloat16")
OPS = [np.add, np.multiply, np.maximum, np.minimum]
INVALID_ARGUMENT, INVALID_USAGE = 4, 5
WRONG: list[str] = []


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


def expect(what: str, condition: object) -> None:
    if not condition:
        last = NCCL.ncclGetLastError(None).decode()
        WRONG.append(f"rank {COMM.rank}: {what} ({last})")


def joined(members: list[int], ranks: int | None = None) -> tuple[int, ctypes.c_void_p]:
    """Make a communicator of the world ranks ``members``; the result and the handle."""
    id_, comm = UniqueId(), ctypes.c_void_p()
    if COMM.rank == members[0]:
        NCCL.ncclGetUniqueId(ctypes.byref(id_))
    group = COMM.Create_group(COMM.group.Incl(members))
    raw = group.bcast(bytes(id_))
    place = members.index(COMM.rank)
    own = UniqueId.from_buffer_copy(raw)
    return NCCL.ncclCommInitRank(ctypes.byref(comm), ranks or len(members), own, place), comm


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def data(name: str, rank: int, count: int) -> np.ndarray:
    """Small integers, whose sums and products every type holds or wraps alike."""
    return np.random.default_rng([rank, 3]).integers(0, 4, count).astype(dtype_of(name))


def at(array: np.ndarray, offset: int = 0) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data + offset * array.itemsize)


def size(count: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(count)


def reductions(members: list[int], comm: ctypes.c_void_p) -> None:
    count, n, place = 24, len(members), members.index(COMM.rank)
    for code, name in enumerate(TYPES):
        parts = [data(name, rank, count) for rank in members]
        for op, function in enumerate(OPS):
            whole = functools.reduce(function, parts).astype(dtype_of(name))
            x, y = parts[place].copy(), np.zeros(count, dtype_of(name))
            NCCL.ncclAllReduce(at(x), at(y), size(count), code, op, comm, None)
            expect(f"AllReduce {name} {op}", (y == whole).all())
            NCCL.ncclAllReduce(at(x), at(x), size(count), code, op, comm, None)
            expect(f"AllReduce in place {name} {op}", (x == whole).all())
            x, each = parts[place].copy(), count // n
            NCCL.ncclReduceScatter(at(x), at(x, place * each), size(each), code, op, comm, None)
            mine = slice(place * each, (place + 1) * each)
            expect(f"ReduceScatter {name} {op}", (x[mine] == whole[mine]).all())


def movements(members: list[int], comm: ctypes.c_void_p) -> None:
    count, n, place = 5, len(members), members.index(COMM.rank)
    for code, name in enumerate(TYPES):
        parts = [data(name, rank, count * n) for rank in members]
        y = np.zeros(count * n, dtype_of(name))
        NCCL.ncclAllGather(at(parts[place]), at(y), size(count), code, comm, None)
        expect(f"AllGather {name}", (y == np.concatenate([p[:count] for p in parts])).all())
        NCCL.ncclBroadcast(at(parts[place]), at(y), size(count), code, n - 1, comm, None)
        expect(f"Broadcast {name}", (y[:count] == parts[-1][:count]).all())
        NCCL.ncclGroupStart()
        NCCL.ncclGroupStart()
        for peer in range(n):
            x = parts[place]
            NCCL.ncclSend(at(x, peer * count), size(count), code, peer, comm, None)
            NCCL.ncclRecv(at(y, peer * count), size(count), code, peer, comm, None)
        NCCL.ncclGroupEnd()
        NCCL.ncclGroupEnd()
        mine = slice(place * count, (place + 1) * count)
        expect(f"exchange {name}", (y == np.concatenate([p[mine] for p in parts])).all())


def numbers_win_over_nan(comm: ctypes.c_void_p) -> None:
    x = np.array([np.nan if COMM.rank == 1 else 2.0, np.nan], np.float32)
    y = np.zeros_like(x)
    NCCL.ncclAllReduce(at(x), at(y), size(2), TYPES.index("float32"), 2, comm, None)
    expect("max as NCCL has it", y[0] == 2 and np.isnan(y[1]))


def wrong_use(comm: ctypes.c_void_p) -> None:
    x = np.zeros(8, np.float32)

    def reduce(count: int = 2, code: int = 7, op: int = 0, handle: object = comm) -> int:
        return NCCL.ncclAllReduce(at(x), at(x), size(count), code, op, handle, None)

    expect("no communicator", reduce(handle=None) == INVALID_ARGUMENT)
    expect("no handle of ours", reduce(handle=at(x)) == INVALID_ARGUMENT)
    expect("unknown type", reduce(code=12) == INVALID_ARGUMENT)
    expect("unknown reduction", reduce(op=5) == INVALID_ARGUMENT)
    expect("counts differ", reduce(count=2 + COMM.rank) == INVALID_USAGE)
    expect("types differ", reduce(code=7 - COMM.rank % 2) == INVALID_USAGE)
    expect("no group", NCCL.ncclGroupEnd() == INVALID_USAGE)
    root = NCCL.ncclBroadcast(at(x), at(x), size(2), 7, COMM.size, comm, None)
    expect("root out of range", root == INVALID_ARGUMENT)
    expect("still usable", reduce() == 0)
    NCCL.ncclCommAbort(comm)
    expect("after abort", reduce() == INVALID_USAGE)


def wrong_communicators(members: list[int]) -> None:
    CUDART.cudaSetDevice(0)
    expect("one GPU for all", joined(members)[0] == INVALID_USAGE)
    expect("which", b"Duplicate GPU detected" in NCCL.ncclGetLastError(None))


def copies() -> None:
    x, y = np.arange(12, dtype=np.uint8), np.zeros(12, np.uint8)

    def copy(to_pitch: int, from_pitch: int, width: int, height: int, kind: int = 3) -> int:
        pitches = size(to_pitch), at(x), size(from_pitch)
        return CUDART.cudaMemcpy2DAsync(at(y), *pitches, size(width), size(height), kind, None)

    expect("2 of every 4", copy(2, 4, 2, 3) == 0)
    expect("in their places", y[:6].tolist() == [0, 1, 4, 5, 8, 9])
    expect("pitch below width", copy(2, 4, 3, 3) == 12)
    expect("unknown direction", copy(2, 4, 2, 3, 5) == 21)
    expect("onto itself", CUDART.cudaMemcpyAsync(at(x), at(x), size(4), 3, None) == 1)


def late(comm: ctypes.c_void_p) -> None:
    """Work of a stream runs when its event is awaited, and reads what is in its buffers then."""
    stream, event = ctypes.c_void_p(), ctypes.c_void_p()
    x, y, z = np.zeros(4, np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    os.environ["TENSOROPT_STAND_IN_LATE"] = "1"
    CUDART.cudaStreamCreateWithFlags(ctypes.byref(stream), 1)
    del os.environ["TENSOROPT_STAND_IN_LATE"]
    CUDART.cudaEventCreateWithFlags(ctypes.byref(event), 2)
    NCCL.ncclAllReduce(at(x), at(y), size(4), TYPES.index("float32"), 0, comm, stream)
    CUDART.cudaEventRecord(event, stream)
    CUDART.cudaMemcpyAsync(at(z), at(y), size(16), 3, stream)
    x[:] = 1  # too early
    expect("nothing before a wait", (y == 0).all())
    CUDART.cudaStreamWaitEvent(None, event, 0)
    expect("what is there when it is awaited", (y == COMM.size).all())
    expect("nothing behind the event", (z == 0).all())
    CUDART.cudaStreamSynchronize(stream)
    expect("all of the stream", (z == COMM.size).all())
    CUDART.cudaEventDestroy(event)
    CUDART.cudaStreamDestroy(stream)


class Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 64),)


def memory() -> None:
    """Blocks are shared by handle: each rank writes into the next one's."""
    address, opened, handle = ctypes.c_void_p(), ctypes.c_void_p(), Handle()
    expect("allocated", CUDART.cudaMalloc(ctypes.byref(address), size(8)) == 0)
    expect("not ours", CUDART.cudaIpcGetMemHandle(ctypes.byref(handle), at(np.zeros(1))) == 1)
    expect("a handle", CUDART.cudaIpcGetMemHandle(ctypes.byref(handle), address) == 0)
    raw = COMM.allgather(bytes(handle))
    following = Handle.from_buffer_copy(raw[(COMM.rank + 1) % COMM.size])
    open_handle, where = CUDART.cudaIpcOpenMemHandle, ctypes.byref(opened)
    expect("no handle", open_handle(where, Handle(), 1) == 1)
    expect("one's own", open_handle(where, handle, 1) == 201)
    expect("opened", open_handle(where, following, 1) == 0)
    x = np.full(8, COMM.rank, np.uint8)
    CUDART.cudaMemcpy(opened, at(x), size(8), 4)
    COMM.Barrier()
    CUDART.cudaMemcpy(at(x), address, size(8), 4)
    expect("written by the one before", (x == (COMM.rank - 1) % COMM.size).all())
    expect("closed", CUDART.cudaIpcCloseMemHandle(opened) == 0)
    expect("closed twice", CUDART.cudaIpcCloseMemHandle(opened) == 1)
    COMM.Barrier()
    expect("freed", CUDART.cudaFree(address) == 0)
    expect("freed twice", CUDART.cudaFree(address) == 1)
    expect("locked", CUDART.cudaHostRegister(at(x), size(8), 0) == 0)
    expect("locked twice", CUDART.cudaHostRegister(at(x), size(8), 0) == 712)
    expect("let go", CUDART.cudaHostUnregister(at(x)) == 0)
    expect("let go twice", CUDART.cudaHostUnregister(at(x)) == 713)


def main() -> None:
    expect("one device each", CUDART.cudaSetDevice(COMM.rank) == 0)
    for members in ([0, 1, 2, 3], [2, 0], [3, 1], [COMM.rank], [3, 0, 1]):
        if COMM.rank in members:
            result, comm = joined(members)
            expect(f"{members}", result == 0)
            reductions(members, comm)
            movements(members, comm)
    _, comm = joined([0, 1, 2, 3])
    numbers_win_over_nan(comm)
    late(comm)
    copies()
    memory()
    wrong_use(comm)
    wrong_communicators([0, 1, 2, 3])
    found = COMM.gather(WRONG)
    if COMM.rank == 0:
        json.dump([line for lines in found for line in lines], sys.stdout)


main()

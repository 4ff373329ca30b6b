"""Sessions bound to arrays with fixed addresses, on the CPU or on a device."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tensoropt.runtime.device.provider import CPU, PlacedArray, Provider
from tensoropt.runtime.session.session import RankSession, rank_session
from tensoropt.runtime.support.dtypes import dtype_of

__all__ = ["array_for", "bound", "drawn", "on_stream", "open_provider"]


def open_provider(name: str, comm: Any) -> Provider:
    """Return this rank's provider; ranks share GPUs if there are fewer GPUs."""
    if name == "cpu":
        return CPU
    from tensoropt.runtime.device.cuda import open_cuda

    return open_cuda(comm, share_gpus=True)


def on_stream(provider: Provider, stream: int | None) -> Provider:
    """Return ``provider`` with ONNX Runtime on a CUDA stream of the program, if there is one."""
    if stream is None or provider.device == "cpu":
        return provider
    (name, options), *rest = provider.sessions()
    moved: Any = copy.copy(provider)
    given = [(name, {**options, "user_compute_stream": str(stream)}), *rest]
    moved.sessions = lambda *, graphs=False: given
    return moved


def bound(path: Path, arrays: Mapping[str, PlacedArray], provider: Provider) -> RankSession:
    """Return the session of a graph that reads and writes ``arrays``, by the names of its values.

    It runs on one thread. Raises UserError.
    """
    session = rank_session(path, threads=1, provider=provider)
    for name in session.inputs:
        session.read(name, arrays[name])
    for name in session.outputs:
        session.write(name, arrays[name])
    return session


def array_for(value: onnx.ValueInfoProto, provider: Provider) -> PlacedArray:
    """Return zeros of the static shape and type of a value."""
    return provider.zeros(*_kind(value))


def drawn(values: Iterable[onnx.ValueInfoProto], provider: Provider) -> dict[str, PlacedArray]:
    """Return random inputs of a graph: normal numbers, and integers from 0 to 15."""
    rng = np.random.default_rng(0)
    found = {}
    for value in values:
        shape, dtype = _kind(value)
        whole = dtype.kind in "iub"
        array = rng.integers(0, 16, shape) if whole else rng.standard_normal(shape)
        found[value.name] = provider.place(np.asarray(array).astype(dtype))
    return found


def _kind(value: onnx.ValueInfoProto) -> tuple[tuple[int, ...], np.dtype[Any]]:
    held = value.type.tensor_type
    if any(not dim.HasField("dim_value") for dim in held.shape.dim):
        raise ValueError(f"value '{value.name}' has no static shape")
    name = helper.tensor_dtype_to_np_dtype(held.elem_type).name
    return tuple(dim.dim_value for dim in held.shape.dim), dtype_of(name)

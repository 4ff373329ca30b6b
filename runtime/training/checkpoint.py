"""Checkpoints: safetensors files of whole tensors, independent of the plan that trained them.

A file ``step-00000020.safetensors`` contains parameters, buffers and moments under their names in
plan.json, and the other state of training in its metadata. It is written to a temporary file and
renamed, so a file with that name is complete. The format: 8 bytes little-endian with the size of a
JSON header, the header, then the bytes of all tensors without gaps.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.runtime.ops import library
from tensoropt.runtime.session.ranks import gather_into
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError, cause_of, did_you_mean
from tensoropt.runtime.support.files import file_mode
from tensoropt.runtime.training.integrity import blank_digests, header_digest, seal
from tensoropt.runtime.training.plan import State, TrainingPlan
from tensoropt.runtime.training.state import Held

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "DTYPES",
    "Facts",
    "Progress",
    "check_checkpoint",
    "checkpoints_in",
    "facts_text",
    "find_checkpoint",
    "keep_latest",
    "metadata_of",
    "path_of",
    "weights_of",
    "write_checkpoint",
]

Facts = tuple[str | int, ...]
"""The element type of a tensor in a checkpoint, under its safetensors name, and its sizes."""

_FORMAT = "tensoropt-checkpoint-2"

DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
}


@dataclass(frozen=True)
class Progress:
    """Progress of training: ``updates`` counts steps that were not dropped, ``samples`` all read.

    ``good_steps`` counts steps since the loss scale changed.
    """

    step: int = 0
    updates: int = 0
    samples: int = 0
    loss_scale: float | None = None
    good_steps: int = 0


@dataclass(frozen=True)
class _Metadata:
    """Metadata of a checkpoint; ``moments`` are names, None before the first step."""

    model: str
    model_sha256: str
    optimizer: str
    moments: Sequence[str] | None
    progress: Progress

    @classmethod
    def parse(cls, path: Path, metadata: Mapping[str, str]) -> _Metadata:
        try:
            return cls(
                metadata["model"],
                metadata["model_sha256"],
                json.loads(metadata["optimizer"])["name"],
                json.loads(metadata["moments"]),
                Progress(**json.loads(metadata["progress"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}: not a checkpoint: metadata: {cause_of(error)}") from None


def path_of(folder: Path, step: int) -> Path:
    """Return the path of a step's checkpoint."""
    return folder / f"step-{step:08d}.safetensors"


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the latest last."""
    return sorted(folder.glob("step-*.safetensors"))


def find_checkpoint(place: Path) -> Path:
    """Return ``place``, or the latest checkpoint in it if it is a folder.

    Raises `UserError` if the folder has none.
    """
    if not place.is_dir():
        return place
    found = checkpoints_in(place)
    if not found:
        raise UserError(f"{place}: expected a checkpoint in the folder, got: none")
    return found[-1]


def keep_latest(folder: Path, count: int) -> None:
    """Remove all checkpoints except the latest ``count``."""
    for path in checkpoints_in(folder)[:-count]:
        path.unlink()


def write_checkpoint(
    path: Path,
    held: Held,
    progress: Progress,
    comm: MPI.Comm,
    *,
    moments: bool = True,
    place: str | None = None,
) -> None:
    """Write the state of the ranks of ``comm`` to ``path``; all ranks must call this.

    Rank 0 writes. No rank buffers more than one other rank's part of one tensor. Raises `UserError`
    on all ranks if the file cannot be written; the message names ``place``, if given, as users do
    not know the path of a temporary file.
    """
    states = [state for state in held.plan.state if moments or not state.is_moment]
    states.sort(key=lambda s: (-dtype_of(s.tensor.dtype).itemsize, s.name))
    metadata = metadata_of(held.plan, progress, moments=moments)
    with _new_file(path, place, _header(states, metadata), states, comm) as places:
        for state in states:
            library.move()
            target, layout = places.get(state.name), state.tensor.layout
            first = held.plan.owners(state).start
            is_source = comm.rank - first in layout.sources()
            if is_source or comm.rank == 0:
                part = held.state[state.name].get() if is_source else None
                gather_into(target, part, layout, comm, first)


def _header(states: Sequence[State], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, object] = {"__metadata__": metadata}
    start = 0
    for state in states:
        end = start + _size(state)
        entries[state.name] = {
            "dtype": DTYPES[state.tensor.dtype],
            "shape": list(state.tensor.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _size(state: State) -> int:
    count = int(np.prod([int(size) for size in state.tensor.shape]))
    return count * dtype_of(state.tensor.dtype).itemsize


def metadata_of(plan: TrainingPlan, progress: Progress, *, moments: bool = True) -> dict[str, str]:
    """Return the metadata of an unsealed checkpoint with or without ``moments``."""
    names = [state.name for state in plan.state if state.is_moment]
    tensors = [state.name for state in plan.state if moments or not state.is_moment]
    return {
        "format": _FORMAT,
        "model": plan.plan.model_name,
        "model_sha256": plan.plan.model_sha256,
        "optimizer": json.dumps(dict(plan.optimizer)),
        "moments": json.dumps(names if moments else None),
        "progress": json.dumps(asdict(progress)),
        **blank_digests(tensors),
    }


@contextmanager
def _new_file(
    path: Path, place: str | None, header: bytes, states: Sequence[State], comm: MPI.Comm
) -> Iterator[Mapping[str, Array]]:
    """Yield the mapped tensors of a new file on rank 0, and rename the file at the end."""
    aside: Path | None = None
    error: str | None = None
    places: dict[str, Array] = {}
    if comm.rank == 0:
        try:
            aside = _allocate(path, len(header) + sum(map(_size, states)))
            places = _places(aside, header, states)
        except OSError as failure:
            error = cause_of(failure)
    try:
        _agree(place or str(path), error, comm)
        yield places
        if aside is not None:
            error = _finish(aside, path, places)
        _agree(place or str(path), error, comm)
    finally:
        if aside is not None:
            with suppress(FileNotFoundError):
                aside.unlink()


def _agree(place: str, error: str | None, comm: MPI.Comm) -> None:
    error = comm.bcast(error)
    if error is not None:
        raise UserError(f"{place}: {error}")


def _allocate(path: Path, size: int) -> Path:
    """Create a file of ``size`` bytes in the folder of ``path``; fails early on a full disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(".step-*.tmp"):  # of a run that was killed while writing
        left.unlink()
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=".tmp")
    with os.fdopen(descriptor, "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError:
            Path(name).unlink()
            raise
    return Path(name)


def _places(aside: Path, header: bytes, states: Sequence[State]) -> dict[str, Array]:
    with aside.open("r+b") as file:
        file.write(header)
    start = len(header)
    places: dict[str, Array] = {}
    for state in states:
        shape = tuple(int(size) for size in state.tensor.shape)
        dtype = dtype_of(state.tensor.dtype)
        if _size(state):
            places[state.name] = np.memmap(aside, dtype, "r+", start, shape)
        else:
            places[state.name] = np.empty(shape, dtype)
        start += _size(state)
    return places


def _finish(aside: Path, path: Path, places: dict[str, Array]) -> str | None:
    """Seal, fsync and rename the file; returns an error, or None."""
    try:
        while places:
            _, place = places.popitem()
            if isinstance(place, np.memmap):
                place.flush()
        seal(aside)
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.chmod(file_mode())
        aside.replace(path)
    except OSError as failure:
        return cause_of(failure)
    return None


def weights_of(path: Path) -> dict[str, Facts]:
    """Return types and shapes of the parameters and buffers in a checkpoint."""
    metadata, tensors = _read_header(path)
    moments = metadata.moments or []
    return {name: facts for name, facts in tensors.items() if name not in moments}


def check_checkpoint(plan: TrainingPlan, path: Path) -> Progress:
    """Return the progress in the checkpoint ``path``; raises `UserError` if it does not fit."""
    metadata, tensors = _read_header(path)
    sha256, name = plan.plan.model_sha256, metadata.optimizer
    if metadata.model_sha256 != sha256:
        raise UserError(
            f"{path}: checkpoint of another model, expected {plan.plan.model_name} with sha256 "
            f"{sha256}, got: {metadata.model} with {metadata.model_sha256}"
        )
    if name != plan.optimizer["name"]:
        raise UserError(
            f"{path}: checkpoint of another optimizer, expected {plan.optimizer['name']}, "
            f"got: {name}"
        )
    starts, step = metadata.moments is None, metadata.progress.step
    if starts and step:
        raise UserError(f"{path}: has no moments after step {step}, expected them")
    states = [state for state in plan.state if not (starts and state.is_moment)]
    _check_tensors(plan, path, states, tensors)
    return metadata.progress


def _check_tensors(
    plan: TrainingPlan, path: Path, states: Iterable[State], found: Mapping[str, Facts]
) -> None:
    expected = {s.name: (DTYPES[s.tensor.dtype], *s.tensor.shape) for s in states}
    for name, facts in expected.items():
        if name not in found:
            raise UserError(f"{path}: tensor '{name}' is missing{did_you_mean(name, found)}")
        if found[name] != facts:
            raise UserError(
                f"{path}: tensor '{name}': expected {facts_text(facts)}, "
                f"got: {facts_text(found[name])}"
            )
    extra = sorted(found.keys() - expected.keys())
    if extra:
        raise UserError(f"{path}: tensor '{extra[0]}' is not in the state of {plan.folder}")


def facts_text(facts: Facts) -> str:
    """Return a tensor's type and shape as text."""
    return f"{facts[0]} {'x'.join(map(str, facts[1:])) or 'scalar'}"


def _read_header(path: Path) -> tuple[_Metadata, dict[str, Facts]]:
    """Return a checkpoint's metadata, and types and shapes by tensor. Reads only its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            tensors = {n: (s.get_dtype(), *s.get_shape()) for n, s in slices.items()}
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint") from None
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: not a checkpoint: {cause_of(error)}") from None
    if metadata.get("format") != _FORMAT:
        raise UserError(
            f"{path}: not a checkpoint of this tensoropt, expected metadata format {_FORMAT}, "
            f"got: {metadata.get('format')}"
        )
    header_digest(path)
    return _Metadata.parse(path, metadata), tensors

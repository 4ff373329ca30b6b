"""The global inputs of a run: from an .npz file, or drawn from a seed.

Every rank creates the same arrays itself, one at a time, so that nothing is sent. It keeps only its
part of each array.
"""

from __future__ import annotations

import math
import string
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.runtime.device.host_memory import exact_blocks
from tensoropt.runtime.plan.dims import bound, terms
from tensoropt.runtime.plan.plan import Tensor, assumed_dims, settle_dims
from tensoropt.runtime.support.dtypes import STRING, Array, dtype_of, is_native
from tensoropt.runtime.support.errors import UserError, cause_of, did_you_mean
from tensoropt.runtime.support.job import DRAWS, INT_RANGE, Job
from tensoropt.runtime.support.npz import npz_headers

__all__ = [
    "Inputs",
    "as_dtype",
    "check_dtype",
    "check_names",
    "check_parts",
    "draws",
    "make_inputs",
    "match_names",
    "match_shapes",
    "perturb",
]

_DEVIATIONS = {"small": 0.01, "large": 10.0}
_ROUNDINGS = {"float32": 5e-7, "float64": 1e-15, "float16": 2e-3, "bfloat16": 1.6e-2}
"""The relative error of a few roundings of each type."""
_BLOCK = 1 << 18  # values drawn at a time
_SIGNS = np.array([-1.0, 1.0])


@dataclass(frozen=True)
class Inputs:
    """The inputs of a job with all sizes known: ``shapes`` are global, by input name.

    ``assumed`` has the dimensions without a size from the user, and the plan's size of each.
    """

    job: Job
    tensors: Mapping[str, Tensor]
    shapes: Mapping[str, tuple[int, ...]]
    assumed: Mapping[str, int] = field(default_factory=dict)

    def array(self, name: str) -> Array:
        """Return one whole input."""
        dtype = dtype_of(self.tensors[name].dtype)
        if self.job.inputs is None:
            return _draw(self.job, name, dtype, self.shapes[name])
        try:
            with np.load(self.job.inputs) as file:
                return as_dtype(file[name], dtype)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(
                f"{self.job.inputs}: array '{name}' is damaged: {cause_of(error)}"
            ) from None

    def part(self, name: str, rank: int) -> Array:
        """Return a rank's part of one input, in separate memory, so that the whole is freed.

        A large drawn input is never allocated as a whole.
        """
        tensor, shape = self.tensors[name], self.shapes[name]
        dtype = dtype_of(tensor.dtype)
        is_box = not tensor.layout.padded and not tensor.layout.layout.has_blocks
        if self.job.inputs is None and is_box and _draws_in_order(dtype):
            return _draw_part(self.job, name, dtype, shape, tensor.layout.bounds(shape, rank))
        with exact_blocks():
            whole = self.array(name)
            part = self.tensors[name].layout.local_slice(whole, rank)
            return part.copy() if part.nbytes < whole.nbytes else part


def make_inputs(
    job: Job, tensors: Sequence[Tensor], allowed: Mapping[str, range] | None = None
) -> Inputs:
    """Return the inputs for a plan's input ``tensors``; raises `UserError` on a misfit.

    ``allowed`` has the sizes of the plan's dimensions by name.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    dims, assumed = settle_dims(job.dims, tensors, allowed or {}), dict[str, int]()
    if job.inputs is None:
        sizes = assumed_dims(tensors, allowed or {}) | dims
        assumed = {name: size for name, size in sizes.items() if name not in dims}
        shapes = {t.name: tuple(int(_resolve(size, sizes)) for size in t.shape) for t in tensors}
    else:
        shapes = _shapes_from_file(job, by_name, dims)
    check_parts(shapes, by_name)
    return Inputs(job, by_name, shapes, assumed)


def check_parts(shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> None:
    """Raise `UserError` unless the plan allows these sizes and the layouts divide them."""
    for name, shape in shapes.items():
        try:
            tensors[name].check(shape)
        except UserError as error:
            raise UserError(f"input '{name}': {error}") from None


def _resolve(size: int | str, dims: Mapping[str, int]) -> int | str:
    return bound(size, dims) if isinstance(size, str) else size


def _shapes_from_file(
    job: Job, tensors: Mapping[str, Tensor], dims: dict[str, int]
) -> dict[str, tuple[int, ...]]:
    headers = npz_headers(Path(str(job.inputs)))
    shapes = {name: found.shape for name, found in headers.items()}
    match_names(str(job.inputs), shapes, tensors)
    for name, tensor in tensors.items():
        check_dtype(str(job.inputs), tensor, headers[name].dtype)
    match_shapes(str(job.inputs), shapes, tensors, dims)
    return {name: shapes[name] for name in tensors}


def check_names(where: str, found: Collection[str], tensors: Mapping[str, Tensor]) -> None:
    """Raise `UserError` unless every array that was ``found`` is among the inputs ``tensors``."""
    for name in found:
        if name not in tensors:
            raise UserError(
                f"{where}: array '{name}' is not an input of the plan{did_you_mean(name, tensors)}"
            )


def match_names(where: str, found: Collection[str], tensors: Mapping[str, Tensor]) -> None:
    """Raise `UserError` unless the arrays that were ``found`` are the inputs ``tensors``."""
    check_names(where, found, tensors)
    for name in tensors:
        if name not in found:
            raise UserError(f"{where}: input '{name}' is missing")


def match_shapes(
    where: str,
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, Tensor],
    dims: dict[str, int],
) -> None:
    """Add the sizes of symbolic dimensions in the inputs' ``shapes`` to ``dims``.

    Raises `UserError` if they do not fit the plan or each other.
    """
    # Plain names first: they determine the sums and products of names.
    for tensor in sorted(tensors.values(), key=_has_arithmetic):
        _match(where, tensor, shapes[tensor.name], dims)


def _has_arithmetic(tensor: Tensor) -> bool:
    return any(isinstance(size, str) and terms(size) != [size] for size in tensor.shape)


def check_dtype(path: str, tensor: Tensor, dtype: np.dtype[np.generic]) -> None:
    """Raise `UserError` unless an array of ``dtype`` in the file ``path`` can be the input."""
    expected = dtype_of(tensor.dtype)
    if tensor.dtype == STRING:
        if dtype.kind != "U":
            raise UserError(
                f"{path}: input '{tensor.name}': expected text, such as numpy's <U8, got: {dtype}"
            )
        return
    # numpy writes types it does not know as raw bytes of their size.
    raw = not is_native(tensor.dtype) and dtype == np.dtype(f"V{expected.itemsize}")
    if dtype != expected and not raw:
        raise UserError(f"{path}: input '{tensor.name}': expected {tensor.dtype}, got: {dtype}")


def _match(path: str, tensor: Tensor, shape: tuple[int, ...], dims: dict[str, int]) -> None:
    sized = []
    for size, found in zip(tensor.shape, shape, strict=False):
        if isinstance(size, str):  # the array sets a dimension that is still unknown
            known = bound(size, dims)
            sized.append(dims.setdefault(size, known if isinstance(known, int) else found))
        else:
            sized.append(size)
    if len(shape) != len(tensor.shape) or shape != tuple(sized):
        wanted = "x".join(map(str, tensor.shape)) or "a scalar"
        got = "x".join(map(str, shape)) or "a scalar"
        known = ", ".join(f"{n}={v}" for n, v in dims.items() if n in tensor.shape)
        where = f" with {known}" if known else ""
        raise UserError(
            f"{path}: input '{tensor.name}': expected shape {wanted}{where}, got: {got}"
        )


def as_dtype(array: Array, dtype: np.dtype[np.generic]) -> Array:
    """Return an array from a file in its dtype; numpy stores types that it lacks as raw bytes."""
    if dtype.hasobject:
        return array.astype(object)
    return array.view(dtype) if array.dtype.kind == "V" and array.dtype != dtype else array


def draws(inputs: Inputs) -> Iterator[Inputs]:
    """Yield the inputs drawn as in the job, and then drawn from the other distributions.

    If the job has the default range of integers, they are also drawn from 0..1, and all 0: a table
    that they index may be small. Inputs from a file are yielded once.
    """
    yield inputs
    job = inputs.job
    if job.inputs is not None:
        return
    kinds = {dtype_of(tensor.dtype).kind for tensor in inputs.tensors.values()}
    if kinds & set("fV"):
        for draw in DRAWS:
            if draw != job.draw:
                yield replace(inputs, job=replace(job, draw=draw))
    if kinds & set("iu") and job.int_range == INT_RANGE:
        for high in (2, 1):
            yield replace(inputs, job=replace(job, int_range=(0, high)))


def perturb(array: Array, name: str) -> Array:
    """Return floats perturbed randomly by a few roundings; other types are unchanged."""
    if array.dtype.kind not in "fV":
        return array
    random = np.random.default_rng(zlib.crc32(name.encode()))
    step = _ROUNDINGS.get(array.dtype.name, 0.0) * random.choice(_SIGNS, array.shape)
    return (array.astype(np.float64) * (1 + step)).astype(array.dtype)


def _draw(job: Job, name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Array:
    """Draw an input: floats from the job's distribution, fair booleans, letters for strings.

    Integers are small, because they often index tables.
    """
    random = np.random.default_rng([job.seed, zlib.crc32(name.encode())])
    if dtype.hasobject:
        return random.choice(np.array(list(string.ascii_lowercase), object), shape)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        low, high = job.int_range
        return random.integers(low, high, shape).astype(dtype)
    return _floats(random, job, dtype, shape)


def _draws_in_order(dtype: np.dtype[np.generic]) -> bool:
    """Return True if the values of a type can be drawn in blocks, in sequence."""
    return not dtype.hasobject and dtype.kind not in "biu"


def _draw_part(
    job: Job,
    name: str,
    dtype: np.dtype[np.generic],
    shape: tuple[int, ...],
    bounds: Sequence[slice],
) -> Array:
    """Return the part of a drawn input within ``bounds``. Blocks are drawn in order."""
    random = np.random.default_rng([job.seed, zlib.crc32(name.encode())])
    if math.prod(shape) <= _BLOCK:
        where: tuple[Any, ...] = (*bounds, ...)  # the ellipsis keeps a scalar an array
        return np.asarray(_floats(random, job, dtype, shape)[where]).copy()
    cut = next(d for d in range(len(shape)) if math.prod(shape[d + 1 :]) <= _BLOCK)
    step = _BLOCK // max(1, math.prod(shape[cut + 1 :]))
    part, own = np.empty([own.stop - own.start for own in bounds], dtype), bounds[cut]
    for index in np.ndindex(shape[:cut]):
        pairs = list(zip(index, bounds, strict=False))
        inside = all(one.start <= place < one.stop for place, one in pairs)
        at = tuple(place - one.start for place, one in pairs)
        for start in range(0, shape[cut], step):
            size = min(step, shape[cut] - start)
            block = _floats(random, job, dtype, (size, *shape[cut + 1 :]))
            first, last = max(own.start, start), min(own.stop, start + size)
            if inside and first < last:
                there = block[(slice(first - start, last - start), *bounds[cut + 1 :])]
                part[(*at, slice(first - own.start, last - own.start))] = there
    return part


def _floats(
    random: np.random.Generator, job: Job, dtype: np.dtype[np.generic], shape: tuple[int, ...]
) -> Array:
    kind = np.float64 if dtype == np.float64 else np.float32
    if job.draw == "uniform":
        return np.asarray(random.random(shape, dtype=kind)).astype(dtype, copy=False)
    array = np.asarray(random.standard_normal(shape, dtype=kind))
    np.multiply(array, kind(_DEVIATIONS.get(job.draw, 1)), out=array)
    return array.astype(dtype, copy=False)

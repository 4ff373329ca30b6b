"""Access to the parameters of a model file: any slice, streamed with bounded memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import numpy_helper

from tensoropt.compiler.importer.model_file import load_model
from tensoropt.compiler.importer.storage import Folder, StoredTensor, locate
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.dialects.elements import Element

__all__ = ["CHUNK_BYTES", "Cut", "ParameterSource", "length"]

CHUNK_BYTES = 4 << 20

Array = npt.NDArray[Any]

Cut = slice | tuple[slice, ...]
"""The indices of a dimension that a part has: one run, or several."""


def length(cut: Cut) -> int:
    """Return the number of indices in a cut."""
    return sum(run.stop - run.start for run in _runs_of(cut))


def _runs_of(cut: Cut) -> tuple[slice, ...]:
    return (cut,) if isinstance(cut, slice) else cut


class ParameterSource:
    """The parameters of a model file, under their names in the imported module.

    ``training`` is the option with which the module was imported. Files are needed once a parameter
    is read.
    """

    def __init__(self, model_path: str | PathLike[str], *, training: bool = False) -> None:
        self._path = Path(model_path)
        self._folder = Folder(self._path)
        parameters = load_model(self._path, training=training).parameters.values()
        self._tensors = {parameter.name: parameter.tensor for parameter in parameters}

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    def check_present(self) -> None:
        """Raise :class:`UserError` if a file with parameters, which a plan needs, is missing."""
        for tensor in self._tensors.values():
            locate(self._folder, tensor).check_present("a plan contains the weights")

    def element(self, name: str) -> Element:
        """Return the element type of a parameter."""
        return self._stored(name).element

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the (global) shape of a parameter."""
        return self._stored(name).shape

    def read(self, name: str, cuts: Sequence[Cut] | None = None) -> Array:
        """Return a parameter, or its part in ``cuts``, one per dimension.

        The part is filled with zeros beyond the size of a dimension.
        """
        stored = self._stored(name)
        bounds = _bounds(stored, cuts)
        parts = [part.reshape(-1) for part in _padded(stored, bounds, CHUNK_BYTES)]
        flat = np.concatenate(parts) if parts else np.empty(0, stored.element.dtype)
        return flat.reshape([*map(_count, bounds)])

    def stream(
        self,
        name: str,
        cuts: Sequence[Cut] | None = None,
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Iterator[bytes]:
        """Yield the bytes of a part in ONNX's format, reading at most ``chunk_bytes`` at a time.

        Tensors inside the proto (typed fields, or a few kilobytes) come in one piece. The part is
        filled with zeros beyond the size of a dimension.
        """
        stored = self._stored(name)
        parts = _padded(stored, _bounds(stored, cuts), chunk_bytes)
        if stored.element.bits % 8:
            yield from _packed(parts, stored.element.bits)
            return
        for part in parts:
            if part.dtype.kind in "iuf":  # ONNX's bytes are little-endian on every machine
                yield part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes()
            else:
                yield part.tobytes()

    def _stored(self, name: str) -> StoredTensor:
        if name not in self._tensors:
            near = did_you_mean(name, self._tensors)
            raise UserError(f"{self._path}: no parameter '{name}'{near}")
        return locate(self._folder, self._tensors[name])


Runs = tuple[tuple[int, int], ...]
Bounds = list[Runs]
"""The runs of indices, (start, stop), of each dimension."""


def _bounds(stored: StoredTensor, cuts: Sequence[Cut] | None) -> Bounds:
    given = cuts if cuts is not None else [slice(None)] * len(stored.shape)
    return [
        tuple((run.start or 0, n if run.stop is None else run.stop) for run in _runs_of(cut))
        for cut, n in zip(given, stored.shape, strict=True)
    ]


def _count(runs: Runs) -> int:
    return sum(stop - start for start, stop in runs)


def _indices(runs: Runs) -> list[int]:
    return [index for run in runs for index in range(*run)]


def _padded(
    stored: StoredTensor, bounds: Bounds, chunk_bytes: int, dim: int = 0
) -> Iterator[Array]:
    """Yield the elements between ``bounds`` in row-major order, in pieces, padded with zeros.

    The bounds may exceed the sizes of the dimensions from ``dim`` on. If a later dimension is
    padded, each index of ``dim`` is a piece of its own.
    """
    sizes = [*zip(bounds, stored.shape, strict=True)]
    beyond = [number for number, (runs, size) in enumerate(sizes) if runs[-1][1] > size]
    if not beyond:
        yield from _parts(stored, bounds, chunk_bytes)
        return
    runs, size = sizes[dim]
    real = tuple((min(start, size), min(stop, size)) for start, stop in runs)
    inside = [real] if beyond[-1] == dim else [((i, i + 1),) for i in _indices(real)]
    for own in inside:
        yield from _padded(stored, [*bounds[:dim], own, *bounds[dim + 1 :]], chunk_bytes, dim + 1)
    rest = math.prod(map(_count, bounds[dim + 1 :]))
    yield np.zeros((_count(runs) - _count(real)) * rest, stored.element.dtype)


def _parts(stored: StoredTensor, bounds: Bounds, chunk_bytes: int) -> Iterator[Array]:
    """Yield the elements between ``bounds`` in row-major order, in pieces."""
    if stored.path is None:
        yield _take(_inline(stored), bounds)
        return
    if not all(map(_count, bounds)):
        return
    with stored.open() as file:
        for first, shape in _runs(stored, bounds, chunk_bytes):
            block = _read_run(file.fileno(), stored, first, math.prod(shape)).reshape(shape)
            inner = bounds[len(bounds) - len(shape) + 1 :] if shape else []
            yield _take(block, [((0, len(block)),), *inner]) if shape else block


def _take(array: Array, bounds: Bounds) -> Array:
    """Return the elements of ``array`` between ``bounds``: a view if each has one run."""
    for dim, runs in enumerate(bounds):
        before = (slice(None),) * dim
        parts = [array[(*before, slice(*run))] for run in runs]
        array = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=dim)
    return array


def _inline(stored: StoredTensor) -> Array:
    try:
        array: Array = numpy_helper.to_array(stored.tensor)
    except ValueError as error:
        raise UserError(f"parameter '{stored.tensor.name}' cannot be read: {error}") from None
    return array


def _runs(
    stored: StoredTensor, bounds: Bounds, chunk_bytes: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield contiguous runs (first element, shape) that cover the part.

    A run is a few whole rows of the first dimension with rows of at most ``chunk_bytes``.
    """
    shape = stored.shape
    if not shape:
        yield 0, ()
        return
    limit = max(1, chunk_bytes * 8 // stored.element.bits)
    axis = next(dim for dim in range(len(shape)) if math.prod(shape[dim + 1 :]) <= limit)
    row = math.prod(shape[axis + 1 :])
    step = max(1, limit // row)
    strides = [math.prod(shape[dim + 1 :]) for dim in range(axis)]
    for index in product(*map(_indices, bounds[:axis])):
        base = sum(i * stride for i, stride in zip(index, strides, strict=True))
        for start, stop in bounds[axis]:
            for first in range(start, stop, step):
                rows = min(step, stop - first)
                yield base + first * row, (rows, *shape[axis + 1 :])


def _read_run(descriptor: int, stored: StoredTensor, first: int, count: int) -> Array:
    """Return ``count`` elements from element ``first`` on."""
    bits, dtype = stored.element.bits, stored.element.dtype
    begin = first * bits // 8
    end = (first + count) * bits // 8 + ((first + count) * bits % 8 > 0)
    raw = np.empty(end - begin, np.uint8)
    view, done = raw.data, 0
    while done < len(raw):
        got = os.preadv(descriptor, [view[done:]], stored.offset + begin + done)
        if not got:
            raise UserError(f"{stored.path}: ends while a parameter is read")
        done += got
    if bits % 8 == 0:
        return raw.view(dtype.newbyteorder("<") if dtype.kind in "iufc" else dtype)
    # One byte for each element of 2, 4 or 6 bits, low bits first.
    skipped = first * bits - begin * 8
    places = np.unpackbits(raw, bitorder="little")[skipped : skipped + count * bits]
    whole = np.packbits(places.reshape(-1, bits), axis=1, bitorder="little")
    return whole.reshape(-1).view(dtype)


def _packed(parts: Iterator[Array], bits: int) -> Iterator[bytes]:
    """Yield the parts packed; bits that do not fill a byte are carried over to the next part."""
    rest = np.empty(0, np.uint8)
    for part in parts:
        raw = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        places = np.unpackbits(raw[:, None], axis=1, bitorder="little")[:, :bits].reshape(-1)
        places = np.concatenate([rest, places])
        whole = len(places) // 8 * 8
        rest = places[whole:]
        yield np.packbits(places[:whole], bitorder="little").tobytes()
    if len(rest):
        yield np.packbits(rest, bitorder="little").tobytes()

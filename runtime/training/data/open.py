"""Opening of the data that the flag --data names: files by their suffix, or Python code."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.options import OptionError
from tensoropt.runtime.training.data.dataset import Dataset
from tensoropt.runtime.training.data.files import data_files
from tensoropt.runtime.training.data.npz import NpzFiles
from tensoropt.runtime.training.data.python import RandomAccess, call_factory, factory_in
from tensoropt.runtime.training.data.samples import PythonSamples
from tensoropt.runtime.training.data.source import Samples, Source
from tensoropt.runtime.training.data.stream import StreamSource

__all__ = ["open_dataset"]

_KINDS = {".npz": "npz", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}


_redirecting = threading.Lock()
"""Two threads that redirect stdout at once could leave it redirected."""


def open_dataset(
    place: str | Path, inputs: Sequence[Tensor], batch: int, shuffle: int | None = None
) -> Source:
    """Return the data that ``place`` names, a file, a folder or a factory of a module.

    Reads the headers of all files, or the first sample of Python code. ``shuffle`` is the seed of
    the order. Raises `UserError` for data that do not match ``inputs``, and for fewer samples than
    ``batch``.
    """
    named = factory_in(str(place))
    if named is None:
        return _of_size(place, Dataset(_files(Path(place), inputs, shuffle), shuffle), batch)
    with _redirecting, redirect_stdout(sys.stderr):  # stdout is for results, user code may print
        source = _of_size(place, _python_source(str(place), *named, inputs, shuffle), batch)
        source.read(0, {t.name: tuple(slice(0, int(n)) for n in (1, *t.shape[1:])) for t in inputs})
    return source


def _of_size(place: str | Path, source: Source, batch: int) -> Source:
    samples = source.facts.samples
    if samples is not None and samples < batch:
        raise UserError(f"{place}: expected at least a batch of {batch}, got: {samples}")
    return source


def _files(place: Path, inputs: Sequence[Tensor], shuffle: int | None) -> Samples:
    kind, paths = data_files(place, _KINDS)
    if kind == "npz":
        return NpzFiles(paths, inputs)
    try:
        from tensoropt.runtime.training.data.arrow import ArrowFiles
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise UserError(
            f"{place}: {kind} files need pyarrow, expected: pip install 'tensoropt[arrow]'"
        ) from None
    return ArrowFiles(kind, paths, inputs, is_shuffled=shuffle is not None)


def _python_source(
    place: str, module: str, name: str, inputs: Sequence[Tensor], shuffle: int | None
) -> Source:
    source = call_factory(place, module, name)
    if isinstance(source, RandomAccess):
        samples = PythonSamples(place, source, inputs)
        if samples.facts.samples is not None or shuffle is None:
            return Dataset(samples, shuffle)
    elif shuffle is None:
        return StreamSource(place, source, inputs)
    text = "{shuffle}: {0} is a stream or has no end, expected it to shuffle by itself"
    raise OptionError(text, place)

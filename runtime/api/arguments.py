"""Arrays from Python, as files for the ranks."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.dtypes import as_array, dtype_of
from tensoropt.runtime.support.errors import UserError

__all__ = ["arrays_folder", "file_of"]


def file_of(
    arrays: str | PathLike[str] | Mapping[str, ArrayLike],
    folder: str,
    name: str,
    plan: str | PathLike[str],
) -> str | PathLike[str]:
    """Return the given path, or the path of a new file in ``folder`` with the given arrays.

    Lists get the types of the inputs of the ``plan``.
    """
    if not isinstance(arrays, Mapping):
        return arrays
    path, tensors = Path(folder, f"{name}.npz"), Plan.load_description(Path(plan)).inputs
    dtypes = {tensor.name: dtype_of(tensor.dtype) for tensor in tensors}
    entries: dict[str, Any] = {
        name: as_array(array, dtypes[name]) if name in dtypes else np.asarray(array)
        for name, array in arrays.items()
    }
    np.savez(path, **entries)
    return path


@contextmanager
def arrays_folder() -> Iterator[str]:
    """Yield a temporary folder for arrays; errors name the argument instead of its file."""
    with tempfile.TemporaryDirectory(prefix="tensoropt-") as folder:
        try:
            yield folder
        except UserError as error:
            named = re.sub(rf"{re.escape(folder)}/(\w+)\.npz", r"\1", str(error))
            raise UserError(named) from None

"""Arguments from Python: validation in the words of the commands, and files for the ranks."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tensoropt.runtime.support.errors import UserError, did_you_mean
from tensoropt.runtime.support.flags import integer, number
from tensoropt.runtime.support.job import PROVIDERS
from tensoropt.runtime.training.job import SCHEDULES

__all__ = ["arrays_folder", "check_given", "file_of"]

_BOUNDS: Mapping[str, Callable[[str], float]] = {
    "atol": number(0.0),
    "checkpoint_every": integer(1),
    "keep": integer(1),
    "learning_rate": number(0.0),
    "loss_scale": number(2.0**-24),
    "rtol": number(0.0),
    "runs": integer(0),
    "seed": integer(0),
    "shuffle": integer(0),
    "stall_s": number(1e-3),
    "steps": integer(1),
    "threads": integer(1),
    "timeout_s": number(1e-3),
    "total_steps": integer(1),
    "warmup": integer(0),
}
_CHOICES = {"schedule": SCHEDULES, "provider": PROVIDERS}


def check_given(given: Mapping[str, Any]) -> None:
    """Raise :class:`UserError` for a value that the flag of that name refuses; skip None."""
    for name, value in given.items():
        if value is not None and name in _BOUNDS:
            _check_bound(name, value)
        if name in _CHOICES and value not in _CHOICES[name]:
            near = did_you_mean(str(value), _CHOICES[name])
            choices = ", ".join(map(repr, _CHOICES[name]))
            raise UserError(
                f"argument {_flag(name)}: invalid choice: '{value}' (choose from {choices}){near}"
            )


def file_of(arrays: str | Path | Mapping[str, ArrayLike], folder: str | Path, name: str) -> str:
    """Return the given path, or write the given arrays to a file in ``folder`` for its path."""
    if not isinstance(arrays, Mapping):
        return str(arrays)
    path = Path(folder, f"{name}.npz")
    entries: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
    np.savez(path, **entries)
    return str(path)


@contextmanager
def arrays_folder() -> Iterator[str]:
    """Yield a temporary folder for arrays; errors name the argument instead of its file."""
    with tempfile.TemporaryDirectory(prefix="tensoropt-") as folder:
        try:
            yield folder
        except UserError as error:
            named = re.sub(rf"{re.escape(folder)}/(\w+)\.npz", r"\1", str(error))
            raise UserError(named) from None


def _check_bound(name: str, value: object) -> None:
    read = _BOUNDS[name]
    try:
        read(str(value))
    except argparse.ArgumentTypeError as error:
        raise UserError(f"argument {_flag(name)}: {error}") from None
    except ValueError:
        kind = getattr(read, "__name__", "number")
        raise UserError(f"argument {_flag(name)}: invalid {kind} value: '{value}'") from None


def _flag(name: str) -> str:
    return f"--{name.removesuffix('_s').replace('_', '-')}"

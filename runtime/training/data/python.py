"""Training data from Python: ``module:factory`` or ``path/to/file.py:factory``.

The factory, called without arguments, returns either of two things. Samples with random access have
``__len__`` and ``__getitem__(index)``, and may have ``__getitems__(indices)``, as PyTorch's
datasets do. A stream is a `Stream`. A sample is a mapping from the names of the inputs to arrays.

Only who starts the job names code: a plan or a folder of data cannot.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from tensoropt.runtime.support.errors import UserError, did_you_mean, one_line

__all__ = ["RandomAccess", "Stream", "factory_in", "made", "one_line_of"]


@runtime_checkable
class RandomAccess(Protocol):
    """Samples by index, from 0 to the length - 1."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Mapping[str, Any]: ...


@runtime_checkable
class Stream(Protocol):
    """Samples one after the other, from any position on.

    With ``__len__`` the stream is an epoch of so many samples, and positions count within it; each
    epoch begins with ``seek(0)``, and before that with ``set_epoch(number)`` where the stream has
    it. Without, the stream has no end, and positions count from the start of training.
    """

    def seek(self, position: int, /) -> None:
        """Let the next ``__iter__`` begin at sample ``position``."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]: ...


def factory_in(place: str) -> tuple[str, str] | None:
    """Return the module or file that ``place`` names, and the factory; None where it is a path."""
    module, colon, name = place.rpartition(":")
    if not (colon and module and name.isidentifier()) or Path(place).exists():
        return None
    is_module = all(part.isidentifier() for part in module.split("."))
    return (module, name) if is_module or module.endswith(".py") else None


def made(place: str, module: str, name: str) -> RandomAccess | Stream:
    """Return what the factory ``name`` of a module or file makes; raises `UserError`."""
    found = _file(place, Path(module)) if module.endswith(".py") else _module(place, module)
    if not hasattr(found, name):
        raise UserError(f"{place}: {module} has no '{name}'{did_you_mean(name, vars(found))}")
    with one_line_of(place):
        source = getattr(found, name)()
    if isinstance(source, RandomAccess | Stream):
        return source
    raise UserError(
        f"{place}: expected __len__ and __getitem__, or seek and __iter__, "
        f"got: {type(source).__name__}"
    )


def _module(place: str, module: str) -> ModuleType:
    with one_line_of(place):
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
    raise UserError(
        f"{place}: no module '{module}', expected one that is installed or on PYTHONPATH, "
        f"or a file: {module.replace('.', '/')}.py"
    )


def _file(place: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"{place}: no file {path}")
    # A name of its own: it is not to take the place of a module that is called so.
    spec = importlib.util.spec_from_file_location(f"tensoropt_data_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with one_line_of(place):
        spec.loader.exec_module(module)
    return module


@contextmanager
def one_line_of(place: str | Callable[[], str]) -> Iterator[None]:
    """Make what a user's code raises a `UserError`, which names ``place`` and the line of it."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        where = place if isinstance(place, str) else place()
        raise UserError(f"{where}: {one_line(error)}{_line_of(error)}") from None


def _line_of(error: Exception) -> str:
    """Return where code that is not ours raised an error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    path = Path(frame.filename)
    return "" if path.parent == Path(__file__).parent else f" ({path.name}:{frame.lineno})"

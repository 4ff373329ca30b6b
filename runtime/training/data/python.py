"""Training data from Python: ``module:factory`` or ``path/to/file.py:factory``.

The factory takes no arguments and returns samples with random access or a stream. Samples with
random access have ``__len__`` and ``__getitem__(index)``, and optionally ``__getitems__(indices)``,
as PyTorch's datasets do. A stream is a `Stream`. A sample maps names of inputs to arrays.

For security, only the user who starts the job can name code; a plan or a folder of data cannot.
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

__all__ = ["RandomAccess", "Stream", "call_factory", "factory_in", "one_line_of"]


@runtime_checkable
class RandomAccess(Protocol):
    """Samples by index, from 0 to ``len - 1``."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Mapping[str, Any]: ...


@runtime_checkable
class Stream(Protocol):
    """A sequence of samples that can start at any position.

    A stream with ``__len__`` is one epoch with that number of samples, and positions count within
    the epoch. Each epoch begins with ``set_epoch(number)``, if the stream defines it, and then
    ``seek(0)``. A stream without ``__len__`` is endless, and positions count from the start of
    training.
    """

    def seek(self, position: int, /) -> None:
        """Make the next ``__iter__`` begin at sample ``position``."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]: ...


def factory_in(place: str) -> tuple[str, str] | None:
    """Return the module or file and the factory in ``place``; None if ``place`` is a path."""
    module, colon, name = place.rpartition(":")
    if not (colon and module and name.isidentifier()) or Path(place).exists():
        return None
    is_module = all(part.isidentifier() for part in module.split("."))
    return (module, name) if is_module or module.endswith(".py") else None


def call_factory(place: str, module: str, name: str) -> RandomAccess | Stream:
    """Return the result of the factory ``name`` of a module or file; raises `UserError`."""
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
    # A prefixed name, so that it does not replace another module of that name.
    spec = importlib.util.spec_from_file_location(f"tensoropt_data_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with one_line_of(place):
        spec.loader.exec_module(module)
    return module


@contextmanager
def one_line_of(place: str | Callable[[], str]) -> Iterator[None]:
    """Convert exceptions of user code to `UserError`, which names ``place`` and the line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        where = place if isinstance(place, str) else place()
        raise UserError(f"{where}: {one_line(error)}{_line_of(error)}") from None


def _line_of(error: Exception) -> str:
    """Return the file and line that raised an error, empty for a file of this package."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    path = Path(frame.filename)
    return "" if path.parent == Path(__file__).parent else f" ({path.name}:{frame.lineno})"

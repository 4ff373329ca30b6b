"""Atomic writes of files and folders."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.support.files import file_mode, folder_mode

__all__ = ["replacing", "replacing_folder"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file in the same folder, which replaces ``path`` only on success."""
    _check_parent(path)
    if path.is_dir():
        raise UserError(f"-o {path}: expected a file, got: a folder")
    if path.exists() and not path.is_file():
        yield path  # a device such as /dev/null is written, not replaced
        return
    with _terminable():
        with _naming(path):
            descriptor, name = tempfile.mkstemp(".tmp", f".{path.name}.", path.parent)
        os.close(descriptor)
        aside = Path(name)
        try:
            with _naming(path):
                yield aside
                aside.chmod(path.stat().st_mode & 0o777 if path.exists() else file_mode())
                aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder next to ``path`` to fill, which replaces ``path`` only on success.

    The caller has checked that ``path`` may be replaced. The old folder stays readable until the
    new one is complete, and is removed last.
    """
    _check_parent(path)
    with _terminable():
        with _naming(path):
            aside = Path(tempfile.mkdtemp(".tmp", f".{path.name}.", path.parent))
        try:
            yield aside
            aside.chmod(folder_mode())
            _swap(aside, path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let errors name ``path`` instead of the temporary file, which users do not know."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn the signals that end a process into an exception, so that partial output is removed.

    This only holds while there is output to remove: an exception inside foreign code, such as the
    loading of a library, does harm. Signals that are ignored stay ignored.
    """
    before = {}
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, _end)
    except ValueError:  # not on the main thread: signals are not ours to handle
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _swap(aside: Path, path: Path) -> None:
    old = aside.with_suffix(".old")
    if not path.exists():
        aside.rename(path)
        return
    path.rename(old)
    try:
        aside.rename(path)
    except OSError:
        with suppress(OSError):
            old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _check_parent(path: Path) -> None:
    if not path.parent.is_dir():
        raise UserError(f"-o {path}: expected an existing folder, got: '{path.parent}'")

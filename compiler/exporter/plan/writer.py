"""Atomic writer of the plan directory; plan.json is written last."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tensoropt.compiler.planning.given_plan import PLAN_FILE
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.files import replacing_folder
from tensoropt.runtime.plan.document import document_sha256, schema_error
from tensoropt.runtime.support.errors import cause_of
from tensoropt.runtime.support.files import sha256_of

__all__ = [
    "PLAN_FILE",
    "check_document",
    "check_own",
    "check_replaceable",
    "file_hashes",
    "filled_folder",
    "listed_files",
    "plan_files",
    "plan_folder",
    "write_document",
    "write_plan",
]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def plan_folder(directory: Path) -> Iterator[Path]:
    """Yield an empty folder to fill with a plan; it becomes ``directory`` on success.

    An existing plan is replaced in one step; anything else is refused and not changed.
    """
    check_replaceable(directory)
    with filled_folder(directory, "plan") as folder:
        yield folder


@contextmanager
def filled_folder(directory: Path, what: str) -> Iterator[Path]:
    """Yield an empty folder to fill with ``what``; it replaces ``directory`` on success.

    The caller has checked that ``directory`` may be replaced.
    """
    try:
        with replacing_folder(directory.resolve()) as folder:
            yield folder
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise UserError(
            f"-o {directory}: {cause_of(error)} (the partial {what} was removed)"
        ) from None


def check_replaceable(directory: Path) -> None:
    """Raise :class:`UserError` unless ``directory`` is missing, empty, or only has a plan."""
    check_own(directory, "plan", plan_files)


def check_own(directory: Path, what: str, listed: Callable[[Path], set[str]]) -> None:
    """Raise :class:`UserError` unless ``directory`` is missing, empty, or only has a ``what``.

    ``listed`` returns the files of a ``what`` in a folder.
    """
    if not directory.exists() and not directory.is_symlink():
        return
    if not directory.is_dir():
        raise UserError(f"-o {directory}: expected a new folder or a {what}, got: a file")
    if directory.is_mount():
        raise UserError(f"-o {directory}: is a mount point, expected a folder inside it")
    own = listed(directory)
    # Stop at the first foreign file: the folder may be a whole disk.
    strange = next((p for p in _files(directory) if p not in own), None)
    if strange is not None:
        raise UserError(
            f"-o {directory}: expected a new folder or a {what}, "
            f"got: a folder with '{strange}', which is not part of a {what}"
        )


def _files(directory: Path) -> Iterator[str]:
    """Yield the relative paths of all files and links, outer folders first."""
    for folder, folders, names in os.walk(directory, onerror=_give_up):
        folders.sort()
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted([*names, *links]):
            yield Path(folder, name).relative_to(directory).as_posix()


def _give_up(error: OSError) -> None:
    raise error  # a folder that cannot be read may not be empty


def write_plan(folder: Path, document: Mapping[str, object]) -> None:
    """Write plan.json into ``folder``, with the hashes of the files already in it.

    ``document`` has all entries in order, except ``files`` and ``sha256``, the hash of all others.
    Equal documents have equal bytes. Raises :class:`UserError` for a document that violates the
    schema, such as an input of complex numbers.
    """
    whole = {**document, "files": file_hashes(folder)}
    whole["sha256"] = document_sha256(whole)
    check_document(whole, Path(PLAN_FILE))
    write_document(folder / PLAN_FILE, whole)


def write_document(path: Path, document: Mapping[str, object]) -> None:
    """Write a JSON document; equal documents have equal bytes."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file under ``folder`` by its relative path, sorted."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in paths}


def plan_files(directory: Path) -> set[str]:
    """Return the files of the plan in ``directory``; plan.json alone if there is no plan."""
    return listed_files(directory, PLAN_FILE)


def listed_files(directory: Path, name: str) -> set[str]:
    """Return the files that the document ``name`` in ``directory`` lists, and ``name``.

    A document that tensoropt did not write lists none.
    """
    try:
        document = json.loads((directory / name).read_text(encoding="utf-8"))
        if str(document["tool"]).startswith("tensoropt "):
            return {name, *document["files"]}
    except (OSError, ValueError, TypeError, KeyError):
        pass
    return {name}


def check_document(document: Mapping[str, object], path: Path) -> None:
    """Raise :class:`UserError`, which names ``path``, if ``document`` violates the schema."""
    error = schema_error(document)
    if error is not None:
        raise UserError(f"{path}: {error}")

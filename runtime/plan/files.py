"""Files of a plan: paths inside its folder, and their digests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.files import sha256_of

__all__ = ["check_files", "path_inside"]


def path_inside(folder: Path, name: str) -> Path:
    """Return the path of a file that plan.json lists; raises `UserError` if it leads elsewhere."""
    relative = PurePosixPath(name)
    path = folder / name
    if relative.is_absolute() or ".." in relative.parts:
        raise UserError(f"{folder / 'plan.json'}: files: expected a path inside, got: {name}")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{folder}: {name} leads out of the folder, expected a file inside")
    return path


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Raise `UserError` unless each of ``files`` has its SHA-256."""
    for name, expected in files.items():
        path = path_inside(folder, name)
        if not path.is_file():
            raise UserError(f"{folder}: {name} is missing")
        found = sha256_of(path)
        if found != expected:
            raise UserError(
                f"{folder}: {name} was changed after the plan was written, "
                f"expected sha256 {expected}, got: {found}"
            )

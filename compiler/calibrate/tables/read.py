"""Tables of a folder, in any of the known formats."""

from __future__ import annotations

from pathlib import Path

from tensoropt.compiler.calibrate.tables.aiconfigurator import (
    is_aiconfigurator,
    read_aiconfigurator,
)
from tensoropt.compiler.calibrate.tables.files import read_files
from tensoropt.compiler.calibrate.tables.rows import Tables
from tensoropt.compiler.support.errors import UserError

__all__ = ["read_tables"]


def read_tables(folder: Path) -> Tables:
    """Return the tables of a folder of a GPU in AIConfigurator, or of a user's files.

    Raises :class:`UserError` if it has no tables, and at the first line that cannot be read.
    """
    if not folder.is_dir():
        raise UserError(f"--from-tables {folder}: expected a folder, got: no such folder")
    return read_aiconfigurator(folder) if is_aiconfigurator(folder) else read_files(folder)

"""Headers of the arrays in an .npz file, read without the arrays."""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensoropt.runtime.support.errors import UserError, cause_of

__all__ = ["NpzArray", "npz_headers"]

_LOCAL_HEADER = 30  # bytes before the name and the extra field; their lengths are the last four


@dataclass(frozen=True)
class NpzArray:
    """One array; ``offset`` is the position of its elements in the file, in bytes.

    ``offset`` is None if they are compressed.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    is_fortran: bool
    offset: int | None


def npz_headers(path: Path) -> dict[str, NpzArray]:
    """Return the arrays of an .npz file by name; raises `UserError`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                info.filename.removesuffix(".npy"): _header(archive, info)
                for info in archive.infolist()
            }
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not an .npz file: {cause_of(error)}") from None


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NpzArray:
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_2_0
        if version == (1, 0):
            read = np.lib.format.read_array_header_1_0
        shape, is_fortran, dtype = read(file)
        place = file.tell()
    offset = None
    if info.compress_type == zipfile.ZIP_STORED:
        assert archive.fp is not None
        # The local header may have another extra field than `info`, which is from the directory.
        archive.fp.seek(info.header_offset)
        name, extra = struct.unpack("<HH", archive.fp.read(_LOCAL_HEADER)[-4:])
        offset = int(info.header_offset + _LOCAL_HEADER + name + extra) + place
    return NpzArray(shape, dtype, is_fortran, offset)

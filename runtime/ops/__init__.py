"""The library of collectives for ONNX Runtime, built from the C++ sources in this folder."""

from __future__ import annotations

import sys
from pathlib import Path

from tensoropt.runtime.support.errors import UserError

__all__ = ["library_path"]

_NAME = "libtensoropt_ops.so"


def library_path() -> Path:
    """Return the path of the library; raises `UserError` where it was not built.

    Not everywhere can it be: ranks and their launcher need Linux, planning does not.
    """
    if sys.platform != "linux":
        raise UserError(f"plans run on Linux alone, got: {sys.platform}; it can plan for others")
    beside = Path(__file__).with_name(_NAME)
    if beside.is_file():
        return beside
    # An editable install keeps the sources in the checkout but puts what is built into
    # site-packages: the list of installed files knows where. What reads it is slow to import.
    from importlib.metadata import PackageNotFoundError, files

    try:
        installed = [f for f in files("tensoropt") or () if f.name == _NAME]
    except PackageNotFoundError:
        installed = []
    for file in installed:
        path = Path(str(file.locate()))
        if path.is_file():
            return path
    raise UserError(f"{beside}: not built, expected it after: pip install .")

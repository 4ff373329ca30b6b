"""The library of collectives for ONNX Runtime, built from the C++ sources in this folder."""

from __future__ import annotations

import sys
from pathlib import Path

from tensoropt.runtime.support.errors import UserError

__all__ = ["library_path"]

_NAME = "libtensoropt_ops.so"


def library_path() -> Path:
    """Return the path of the library; raises `UserError` if it was not built.

    It is built on Linux only: ranks and their launcher need Linux, planning does not.
    """
    if sys.platform != "linux":
        raise UserError(f"plans run on Linux alone, got: {sys.platform}; it can plan for others")
    default = Path(__file__).with_name(_NAME)
    if default.is_file():
        return default
    # An editable install leaves the sources in the checkout and puts built files into
    # site-packages; the list of installed files has their paths. importlib.metadata is slow to
    # import.
    from importlib.metadata import PackageNotFoundError, files

    try:
        installed = [f for f in files("tensoropt") or () if f.name == _NAME]
    except PackageNotFoundError:
        installed = []
    for file in installed:
        path = Path(str(file.locate()))
        if path.is_file():
            return path
    raise UserError(f"{default}: not built, expected it after: pip install .")

"""The newest versions of ONNX's format and operators that ONNX Runtime loads.

A plan may run where the oldest ONNX Runtime of `pyproject.toml` is installed, so it is written in
its version of the format. Operators keep the versions of the model.
"""

from __future__ import annotations

from tensoropt.runtime.support.onnx_runtime import installed_builds

__all__ = ["MAX_IR_VERSION", "MAX_OPSET", "max_opset"]

# A test compares these with the installed ONNX Runtime.
MAX_IR_VERSION = 13
MAX_OPSET = {"": 28, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1, "com.microsoft": 1}
_OLDER = {"1.31.": 26}
"""The newest version of the standard domain by release, where it is older."""


def max_opset(domain: str) -> int | None:
    """Return the newest version of a domain that the installed ONNX Runtime loads.

    None for a domain of a user.
    """
    newest = MAX_OPSET.get(domain)
    for release in installed_builds().values():
        older = (limit for start, limit in _OLDER.items() if release.startswith(start))
        newest = next(older, newest) if not domain else newest
    return newest

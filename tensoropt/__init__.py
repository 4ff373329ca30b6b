"""Spread an ONNX model over several devices: what a person uses from Python.

Names are imported when they are first used: `import tensoropt` costs next to nothing, and a machine
that only runs plans needs no compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensoropt.runtime.support.errors import UserError
    from tensoropt.runtime.support.version import __version__

__all__ = ["UserError", "__version__"]

_HOMES = {
    "UserError": "tensoropt.runtime.support.errors",
    "__version__": "tensoropt.runtime.support.version",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'tensoropt' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__

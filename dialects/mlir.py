"""The only module that imports the MLIR bindings, so that another package can take their place."""

from __future__ import annotations

from tensoropt.runtime.support.errors import UserError

try:
    from torch_mlir import ir
except ModuleNotFoundError as error:  # a machine that only runs plans has none
    raise UserError(
        "MLIR is not installed, which planning needs: pip install 'tensoropt[compiler]'"
    ) from error
from torch_mlir._mlir_libs._mlir import globals as _bindings
from torch_mlir.dialects import ext, func, shard
from torch_mlir.passmanager import PassManager

__all__ = ["PassManager", "ext", "func", "ir", "shard"]

# The bindings look for a module of Python classes for the dialect of every operation that they
# hand out, and try again each time when there is none; they find `onnx` and `topt` here.
_bindings.append_dialect_search_prefix("tensoropt.dialects")

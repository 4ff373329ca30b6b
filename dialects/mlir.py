"""The MLIR bindings. Nothing else imports them, so another package can replace them."""

from __future__ import annotations

from tensoropt.runtime.support.errors import UserError

try:
    from torch_mlir import ir
except ModuleNotFoundError as error:  # not installed on a machine that only runs plans
    raise UserError(
        "MLIR is not installed, which planning needs: pip install 'tensoropt[compiler]'"
    ) from error
from torch_mlir._mlir_libs._mlir import globals as _bindings
from torch_mlir.dialects import ext, func, shard
from torch_mlir.passmanager import PassManager

__all__ = ["PassManager", "ext", "func", "ir", "shard"]

# For each operation the bindings look up a Python module of its dialect, and a failed lookup is
# repeated every time. With this prefix they find `onnx` and `topt`.
_bindings.append_dialect_search_prefix("tensoropt.dialects")

"""Verifier of `topt` attributes and operations in a module, beyond MLIR's own verifier."""

from tensoropt.dialects.verifier.carrier import InvalidError
from tensoropt.dialects.verifier.module import verify

__all__ = ["InvalidError", "verify"]

"""Checks of whole modules, of what `topt` says in them that MLIR cannot check itself."""

from tensoropt.dialects.verifier.carrier import InvalidError
from tensoropt.dialects.verifier.module import verify

__all__ = ["InvalidError", "verify"]

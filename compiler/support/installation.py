"""Check of the ONNX Runtime installation, for each command that needs it."""

from __future__ import annotations

from tensoropt.compiler.support.errors import UserError

__all__ = ["check_installation"]


def check_installation() -> None:
    """Raise :class:`UserError` with a remedy unless exactly one ONNX Runtime is installed."""
    from tensoropt.runtime.support.onnx_runtime import installation_fault

    fault = installation_fault()
    if fault is not None:
        raise UserError(fault)

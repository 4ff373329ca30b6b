"""The version this runtime reports; a test keeps it equal to the compiler's."""

from __future__ import annotations

__all__ = ["TOOL", "__version__"]

__version__ = "0.1.0"
TOOL = f"tensoropt {__version__}"

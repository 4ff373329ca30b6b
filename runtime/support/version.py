"""The version of the runtime; a test checks that it equals the compiler's."""

from __future__ import annotations

__all__ = ["TOOL", "__version__"]

__version__ = "0.1.0"
TOOL = f"tensoropt {__version__}"

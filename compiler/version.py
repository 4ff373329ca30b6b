"""The version, in one place; the build reads it from here."""

from __future__ import annotations

__all__ = ["TOOL", "__version__"]

__version__ = "0.1.0"
TOOL = f"tensoropt {__version__}"

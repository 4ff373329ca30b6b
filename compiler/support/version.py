"""The version, from the runtime, which a serving machine has without the compiler."""

from __future__ import annotations

from tensoropt.runtime.support.version import TOOL, __version__

__all__ = ["TOOL", "__version__"]

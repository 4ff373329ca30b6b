"""The one error a user of the compiler can cause: that of the runtime, which it shares."""

from __future__ import annotations

from tensoropt.runtime.support.errors import UserError, did_you_mean

__all__ = ["UserError", "did_you_mean"]

"""The error that a user of the compiler can cause, which it shares with the runtime."""

from __future__ import annotations

from tensoropt.runtime.support.errors import UserError, did_you_mean

__all__ = ["UserError", "did_you_mean"]

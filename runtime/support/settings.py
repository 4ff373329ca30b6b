"""Validation of job settings from Python, with messages that name arguments instead of flags."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.job import PROVIDERS

__all__ = ["check_settings"]


def check_settings(
    settings: Mapping[str, Any], timeout_s: float | None, ready_s: float | None = None
) -> None:
    """Raise `UserError` for an invalid provider, number of threads or time limit."""
    provider, threads = settings.get("provider", "cpu"), settings.get("threads")
    if provider not in PROVIDERS:
        listed = " or ".join(f"'{name}'" for name in PROVIDERS)
        raise UserError(f"provider: expected {listed}, got: '{provider}'")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise UserError(f"threads: expected a whole number from 1, got: {threads}")
    for name, seconds in (("timeout_s", timeout_s), ("ready_s", ready_s)):
        if seconds is not None and (not isinstance(seconds, Real) or not seconds > 0):
            raise UserError(f"{name}: expected seconds above 0, got: {seconds}")

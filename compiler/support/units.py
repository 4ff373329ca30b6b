"""Parsing and formatting of bytes and seconds."""

from __future__ import annotations

import re

from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.support.tables import UNITS

__all__ = ["BYTES", "SECONDS", "format_bytes", "format_seconds", "parse_bytes"]

_DECIMAL = ("B", "KB", "MB", "GB", "TB", "PB")
_FACTORS = {unit.lower(): 1024**power for power, unit in enumerate(UNITS)} | {
    unit.lower(): 1000**power for power, unit in enumerate(_DECIMAL)
}
SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
"""Units of time, the largest first."""
BYTES = tuple((1024**power, unit) for power, unit in enumerate(UNITS))[::-1]
"""Units of memory, the largest first."""
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str, flag: str) -> int:
    """Return the bytes in ``16GiB``, ``1.5 GB`` or ``4096``; an error names ``flag``."""
    match = _AMOUNT.fullmatch(text)
    factor = _FACTORS.get((match[2] or "B").lower()) if match else None
    size = int(float(match[1]) * factor) if match and factor else 0
    if size <= 0:
        units = ", ".join((*_DECIMAL[:5], *UNITS[1:5]))
        raise UserError(
            f"{flag}: expected a positive amount such as 16GiB, 1.5GB or 4096 "
            f"(units {units}), got: '{text}'"
        )
    return size


def format_bytes(size: float) -> str:
    """Return ``size`` bytes with a binary unit and three significant digits."""
    amount, power = float(size), 0
    while abs(amount) >= 999.5 and power < len(UNITS) - 1:
        amount, power = amount / 1024, power + 1
    return f"{_three_digits(amount) if power else round(amount)} {UNITS[power]}"


def format_seconds(time_s: float) -> str:
    """Return ``time_s`` seconds with a suitable unit and three significant digits."""
    if time_s == 0:
        return "0 s"
    scale, unit = next((s for s in SECONDS if abs(time_s) >= s[0] * 0.9995), SECONDS[-1])
    return f"{_three_digits(time_s / scale)} {unit}"


def _three_digits(amount: float) -> str:
    decimals = 2 if abs(amount) < 9.995 else 1 if abs(amount) < 99.95 else 0
    return f"{amount:.{decimals}f}"

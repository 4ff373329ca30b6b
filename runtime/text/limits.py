"""Limits of text generation, and their defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.kinds import SWITCH, Kind, integer
from tensoropt.runtime.support.options import Options, option

__all__ = [
    "MAX_TOKENS",
    "MOST_EMBEDDED",
    "MOST_TOKENS",
    "SLOTS",
    "SPECULATE",
    "STEP_TOKENS",
    "Ending",
]

MAX_TOKENS = 128
"""New tokens of a text."""

SLOTS = 16
"""Texts that ranks continue together."""

SPECULATE = 0
"""Tokens that are proposed for a text in a step."""

STEP_TOKENS = 512
"""Tokens of prompts that are read between two tokens of the texts that run."""

MOST_TOKENS = 1 << 17
"""Tokens of a text for a decoder without a known limit: caches reserve memory for them."""

MOST_EMBEDDED = 1 << 13
"""Tokens of a text for an encoder without a known limit: attention takes their square in memory."""


def _take_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _take_texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(_take_text, value))


def _take_tokens(value: Any) -> tuple[int, ...]:
    return tuple(map(_TOKEN.take, value))


_TOKEN = integer(0, 2**63 - 1)
_TOKENS = Kind("tokens", _take_tokens)


@dataclass(frozen=True)
class Ending(Options):
    """The end of a continuation, see `TextSession.stream`."""

    max_tokens: int = option(MAX_TOKENS, integer(1, 2**63 - 1))
    min_tokens: int = option(0, integer(0, 2**63 - 1))
    stop: Sequence[str] = option((), Kind("texts", _take_texts))
    stop_tokens: Sequence[int] = option((), _TOKENS)
    ignores_end: bool = option(False, SWITCH)
    grammar: str | None = option(None, Kind("a text", _take_text))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_tokens > self.max_tokens:
            raise UserError(f"min-tokens: expected 0 to {self.max_tokens}, got: {self.min_tokens}")
        if self.min_tokens and self.grammar is not None:
            raise UserError("min-tokens: not with a grammar, which ends the text")
        if self.ignores_end and self.grammar is not None:
            raise UserError("grammar: not with ignores_end, as an end token follows the text")

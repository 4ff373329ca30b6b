"""Probabilities of tokens in the forms of OpenAI's two APIs for text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tensoropt.runtime.text.session import Piece

__all__ = ["Spell", "TextOf", "chat_logprobs", "completion_logprobs", "mean_logprob"]

TextOf = Callable[[int], str]
"""Returns the text of a token."""

Spell = Callable[[int], tuple[str, bytes]]
"""Returns the text of a token, and its bytes, which may be a part of a character."""


def mean_logprob(pieces: Sequence[Piece]) -> float:
    """Return the mean of the chosen tokens."""
    return sum(piece.likely[0][1] for piece in pieces if piece.likely) / len(pieces)


def completion_logprobs(pieces: Sequence[Piece], text_of: TextOf, offset: int) -> dict[str, Any]:
    """Return the form of completions; ``offset`` is the place of the first token in the text.

    Values of a piece without probabilities are null.
    """
    lengths = (len(piece.text) for piece in pieces[:-1])
    likely = [piece.likely for piece in pieces]
    return {
        "tokens": [text_of(piece.token) for piece in pieces],
        "token_logprobs": [own and own[0][1] for own in likely],
        # The piece's own token comes last, so that it keeps its own value.
        "top_logprobs": [
            own and {text_of(token): value for token, value in (*own[1:], own[0])} for own in likely
        ],
        "text_offset": [*accumulate(lengths, initial=offset)],
    }


def chat_logprobs(pieces: Sequence[Piece], spell: Spell) -> dict[str, Any]:
    """Return the form of chats."""
    found = []
    for piece in pieces:
        assert piece.likely is not None
        first, *others = (_describe(*spell(token), value) for token, value in piece.likely)
        found.append({**first, "top_logprobs": others})
    return {"content": found, "refusal": None}


def _describe(text: str, own: bytes, value: float) -> dict[str, Any]:
    return {"token": text, "logprob": value, "bytes": [*own]}

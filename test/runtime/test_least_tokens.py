"""Texts with a least number of tokens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tensoropt.runtime.text.engine import Writer
from tensoropt.runtime.text.restricting import AtLeast
from tensoropt.runtime.text.stopping import StopTexts

END = 9


def test_no_end_token_is_allowed_before_the_least_number() -> None:
    restriction = AtLeast(2, [1, 3, 99])  # some end tokens are not of the vocabulary
    for allowed in ([0, 2], [0, 2], [0, 1, 2, 3], [0, 1, 2, 3]):
        assert [*restriction.allowed(4).nonzero()[0]] == allowed
        restriction.take(0)


@pytest.mark.parametrize(
    ("least", "stop", "texts", "finish"),
    [
        (0, "xy", ["a", "", ""], "stop"),
        (1, "xy", ["a", "", ""], "stop"),
        (2, "xy", ["a", "x", "y", "b", "c"], "length"),
        (2, "yb", ["a", "x", "", ""], "stop"),
        (9, "xy", ["a", "x", "y", "b", "c"], "length"),
    ],
)
def test_stop_texts_count_after_the_least_tokens(
    least: int, stop: str, texts: list[str], finish: str
) -> None:
    letters = iter("axybc")
    stream: Any = SimpleNamespace(add=lambda _: next(letters), run="", rest=lambda: "")
    writer = Writer(0, 5, stream, StopTexts([stop]), [END], least=least)
    pieces = [writer.add(1)]
    while pieces[-1].finish is None:
        pieces.append(writer.add(1))
    assert [piece.text for piece in pieces] == texts
    assert pieces[-1].finish == finish


def test_an_end_token_ends_a_text_that_has_its_least_tokens() -> None:
    writer = Writer(0, 5, None, StopTexts([]), [END], least=1)
    assert [writer.add(token).finish for token in (1, END)] == [None, "stop"]

"""Formats of texts as grammars."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tensoropt.serving.openai.formats import StructuredOutputs


@pytest.mark.parametrize(
    ("regex", "grammar"),
    [
        ("a/b", r"start: /a\x2Fb/"),
        (r"a\/b", r"start: /a\x2Fb/"),
        ("a\nb", r"start: /a\nb/"),
        ("a\\\nb", r"start: /a\nb/"),  # an escaped line break is one, no backslash before an n
        ("a\\\\\nb", r"start: /a\\\nb/"),
        (r"a\\/b", r"start: /a\\\x2Fb/"),
        (r"\n\\\d", r"start: /\n\\\d/"),
    ],
)
def test_a_regular_expression_within_slashes(regex: str, grammar: str) -> None:
    assert StructuredOutputs.model_validate({"regex": regex}).grammar() == grammar


@pytest.mark.parametrize("regex", ["\\", "a\\", "a\\\\\\"])
def test_a_regular_expression_that_ends_with_a_backslash(regex: str) -> None:
    with pytest.raises(ValidationError, match="regex: ends with a backslash, expected a charac"):
        StructuredOutputs.model_validate({"regex": regex})

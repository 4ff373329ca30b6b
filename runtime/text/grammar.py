"""Grammars that restrict the tokens of a text, by the library llguidance.

A grammar is text in llguidance's variant of Lark, which embeds JSON schemas. `Matcher` restricts a
text on a rank; it depends only on the grammar and the tokens so far, and its limits count work, not
time. So all ranks allow the same tokens without a message.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.runtime.text.tokens import read_tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

__all__ = ["NICE", "STACK_BYTES", "Grammars", "Matcher", "check_installation", "json_rule"]

NICE = 5
"""Priority of compilations: next to busy ranks they get a quarter of a core."""

STACK_BYTES = 1 << 23
"""Stack of compilations on ranks; checks have half of it."""

_SPACES = r"(\n[ \t]{0,64}| ?)"
"""Space between the tokens of JSON: a line break and an indentation, or a space.

A weak model would otherwise write spaces up to its limit.
"""

# In errors of the library: a bound that is no 64-bit integer, a grammar without a first token, and
# patterns, with the cause in a later line.
_BOUND, _NO_TOKEN = "Failed to generate regex for", "NoExtensionBias"
_PARSED, _CAUSE = "regex parse error:", "error: "

_COMPILED = 16  # grammars that are kept
_LEXER_STATES = 20_000  # of a grammar, about 2 KiB each
_GRAMMAR_SIZE = 100_000  # symbols


def check_installation() -> None:
    """Raise `UserError` without the library."""
    if importlib.util.find_spec("llguidance") is None:
        raise UserError(
            "grammar: needs the package llguidance, expected pip install tensoropt[text]"
        )


def json_rule(schema: Mapping[str, Any]) -> str:
    """Return the right side of a rule for JSON with a schema."""
    options = {"whitespace_pattern": _SPACES}
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


class Matcher:
    """Restricts the tokens of one text by a grammar; an end token may follow a complete text."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def allowed(self, size: int) -> npt.NDArray[np.bool_]:
        """Return True for each of ``size`` tokens that may follow; none after an error."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            return np.zeros(size, np.bool_)
        return np.unpackbits(bits, count=size, bitorder="little").view(np.bool_)

    def take(self, token: int) -> None:
        """Continue after a chosen token."""
        self._matcher.consume_token(token)


class Grammars:
    """Compiles grammars for a vocabulary of ``size`` tokens, with these ``end`` tokens.

    ``tokenizer`` is a file tokenizer.json; the first grammar reads it, in a second for a large one.
    """

    def __init__(self, tokenizer: Path, size: int, end: Sequence[int]) -> None:
        self._path, self._size, self._end = tokenizer, size, end
        self._compiled = lru_cache(_COMPILED)(self._compile)

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        check_installation()
        from llguidance import LLTokenizer

        try:
            text = read_tokenizer(self._path)
            return LLTokenizer(text, n_vocab=self._size, eos_token=[*self._end])
        except Exception as error:  # the library raises several
            raise UserError(f"{self._path}: not for grammars: {one_line(error)}") from None

    def matcher(self, grammar: str) -> Matcher:
        """Return a matcher at the beginning of a text.

        Raises `UserError` for a bad grammar, or a tokenizer that the library does not know.
        """
        return Matcher(self._compiled(grammar).deep_copy())

    def load(self) -> None:
        """Read the tokenizer now. Raises `UserError`."""
        _ = self._tokenizer

    def _compile(self, grammar: str) -> LLMatcher:
        from llguidance import LLMatcher

        found = LLMatcher(self._tokenizer, grammar, log_level=0, limits=_limits())
        if not found.is_error():
            found.compute_bitmask()
        if found.is_error():
            raise UserError(f"grammar: {_describe(found.get_error())}")
        return found


def _describe(error: str) -> str:
    """Return an error of the library as one line, without its excerpt of the grammar."""
    first, *rest = error.splitlines()
    if _BOUND in first:
        return "minimum, maximum: expected numbers of less than 2^63 in size, got: larger ones"
    if first == _NO_TOKEN:
        return "no token of the model can begin the text"
    causes = (line.removeprefix(_CAUSE) for line in rest if line.startswith(_CAUSE))
    return " ".join([first.strip(), *causes] if first.endswith(_PARSED) else [first.strip()])


def _limits() -> LLParserLimits:
    from llguidance import LLParserLimits

    return LLParserLimits(
        max_lexer_states=_LEXER_STATES, max_grammar_size=_GRAMMAR_SIZE, verbose_errors=False
    )

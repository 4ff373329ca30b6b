"""Conversion between text and tokens, with the library `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError, cause_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["FILE", "TextOf", "Vocabulary", "find_tokenizer"]

FILE = "tokenizer.json"

_BEGINNING = 16  # characters per allowed token: most texts have about 4


def find_tokenizer(plan: Plan, given: Path | str | None) -> Path | None:
    """Return the tokenizer file of a plan: the given file, or the plan's own."""
    if given is not None:
        return Path(given)
    return plan.folder / FILE if FILE in plan.files else None


class Vocabulary:
    """The tokenizer in a file ``tokenizer.json``. Raises `UserError` for a missing or bad file."""

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UserError(
                "text needs the package tokenizers, expected pip install tensoropt[text]"
            ) from None
        if not path.is_file():
            raise UserError(f"--tokenizer {path}: no such file")
        try:
            self._tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises Exception itself
            raise UserError(
                f"--tokenizer {path}: expected a tokenizer.json, got: {cause_of(error)}"
            ) from None

    def tokens(self, text: str, *, is_begun: bool = False) -> list[int]:
        """Return the tokens of a text; special tokens are added unless ``is_begun``.

        It encodes a batch of one text, because only batches release the GIL in this library.
        """
        (found,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=not is_begun)
        return list(found.ids)

    def exceeds(self, text: str, most: int) -> bool:
        """Return True if a prefix of a text proves that the text has more than ``most`` tokens.

        Truncation changes the last tokens of a prefix, so it must have more than ``2 * most``.
        """
        size = _BEGINNING * most
        while size < len(text):
            if len(self.tokens(text[:size])) > 2 * most:
                return True
            size *= 2
        return False

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens within a text, with special tokens.

        Some decoders drop the space before the first token, so another token precedes them.
        """
        text = self._tokenizer.decode([*self._before, *tokens], skip_special_tokens=False)
        return text[self._start :]

    def split(self, tokens: Sequence[int], text: str) -> list[str]:
        """Return the part of each token in the ``text`` of tokens; the parts together are the text.

        Tokens before the text, such as a mark of its beginning, have none.
        """
        stream = self.stream(skips_special=False)
        ends = [*accumulate(len(stream.add(token)) for token in tokens)]
        before = max(0, ends[-1] - len(text))
        cuts = [min(max(0, end - before), len(text)) for end in ends[:-1]]
        return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]

    @cached_property
    def _before(self) -> list[int]:
        """A token of plain text."""
        return self.tokens("a", is_begun=True)

    @cached_property
    def _start(self) -> int:
        """Length of the text of that token."""
        return len(self._tokenizer.decode(self._before, skip_special_tokens=False))

    def stream(self, *, skips_special: bool = True) -> TextOf:
        """Return an incremental decoder, of tokens that are not special only if it skips those."""
        return TextOf(self._tokenizer, skips_special=skips_special)


class TextOf:
    """Incremental decoder of tokens to text: a character may take several tokens."""

    def __init__(self, tokenizer: Tokenizer, *, skips_special: bool) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stream: Any = DecodeStream(skip_special_tokens=skips_special)

    def add(self, token: int) -> str:
        """Return the new text after the next token; it may be empty."""
        return self._stream.step(self._tokenizer, token) or ""

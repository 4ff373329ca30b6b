"""Tokens from text and text from tokens, by the library `tokenizers`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError, cause_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["FILE", "TextOf", "Vocabulary", "find_tokenizer"]

FILE = "tokenizer.json"

_BEGINNING = 16  # characters for each token that is allowed: most texts have about 4


def find_tokenizer(plan: Plan, given: Path | str | None) -> Path | None:
    """Return the file with a plan's tokenizer: the one that is given, or the plan's own."""
    if given is not None:
        return Path(given)
    return plan.folder / FILE if FILE in plan.files else None


class Vocabulary:
    """The tokenizer in a file ``tokenizer.json``. Raises `UserError` where there is none."""

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
        except Exception as error:  # the library raises that itself
            raise UserError(
                f"--tokenizer {path}: expected a tokenizer.json, got: {cause_of(error)}"
            ) from None

    def tokens(self, text: str, *, is_begun: bool = False) -> list[int]:
        """Return the tokens of a text, with those that begin one unless it has them itself.

        It encodes a batch of one, since only batches release Python's lock in this library.
        """
        (found,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=not is_begun)
        return list(found.ids)

    def exceeds(self, text: str, most: int) -> bool:
        """Say whether the beginning of a text alone proves that it has more than ``most`` tokens.

        A cut changes the last tokens of the beginning, so it must have more than ``2 * most``.
        """
        size = _BEGINNING * most
        while size < len(text):
            if len(self.tokens(text[:size])) > 2 * most:
                return True
            size *= 2
        return False

    def stream(self) -> TextOf:
        """Return what makes text of tokens that come one by one."""
        return TextOf(self._tokenizer)


class TextOf:
    """Makes text of tokens as they come: several may be one character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stream: Any = DecodeStream(skip_special_tokens=True)

    def add(self, token: int) -> str:
        """Return what is new of the text with another token; it may be nothing yet."""
        return self._stream.step(self._tokenizer, token) or ""

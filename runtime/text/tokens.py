"""Conversion between text and tokens, with the library `tokenizers`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError, cause_of, is_failure

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["FILE", "TextOf", "Vocabulary", "find_tokenizer", "read_tokenizer"]

FILE = "tokenizer.json"

_CHANGES = "padding", "truncation"  # of all texts, in a tokenizer's file
_BEGINNING = 16  # characters per allowed token: most texts have about 4
_MOST_PER_TOKEN, _SHORT = 64, 1 << 16  # characters of a text, before and after normalisation
_NORMALISED = 256  # characters that are normalised at a time
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # of bytes that are no characters
_BEFORE, _WINDOW = 4, 8  # tokens before the next one: a character has at most 4


def find_tokenizer(plan: Plan, given: Path | str | None) -> Path | None:
    """Return the tokenizer file of a plan: the given file, or the plan's own."""
    if given is not None:
        return Path(given)
    return plan.folder / FILE if FILE in plan.files else None


def read_tokenizer(path: Path) -> str:
    """Return the text of a tokenizer's file, without padding and truncation.

    Raises OSError and ValueError.
    """
    text = path.read_text(encoding="utf-8")
    tokenizer = json.loads(text)
    if isinstance(tokenizer, dict) and any(tokenizer.get(name) for name in _CHANGES):
        return json.dumps({**tokenizer, **dict.fromkeys(_CHANGES)})
    return text


class Vocabulary:
    """The tokenizer in a file ``tokenizer.json``, without its padding and truncation.

    Files of sentence encoders have both. They would add tokens to a text, or cut it. Raises
    `UserError` for a missing or bad file, and for a text that the tokenizer fails on.
    """

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UserError(
                "text needs the package tokenizers, expected pip install tensoropt[text]"
            ) from None
        if not path.is_file():
            raise UserError(f"--tokenizer {path}: no such file")
        self._path = path
        try:
            self._tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        except BaseException as error:  # the library raises Exception itself, and panics
            if not is_failure(error):
                raise
            raise UserError(
                f"--tokenizer {path}: expected a tokenizer.json, got: {cause_of(error)}"
            ) from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if not is_failure(error):
                raise
            raise UserError(f"{self._path}: fails on this text: {cause_of(error)}") from None

    def tokens(self, text: str, *, is_begun: bool = False) -> list[int]:
        """Return the tokens of a text; special tokens are added unless ``is_begun``.

        It encodes a batch of one text, because only batches release the GIL in this library.
        """
        with self._refusals():
            (found,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=not is_begun)
        return list(found.ids)

    @cached_property
    def size(self) -> int:
        """One more than the largest token."""
        return 1 + max(self._tokenizer.get_vocab().values(), default=-1)

    def exceeds(self, text: str, most: int) -> bool:
        """Return True if a text is too long for ``most`` tokens, in time for about ``most`` tokens.

        It has too many characters, before or after normalisation, or a prefix proves it. The cut
        changes the last tokens of a prefix, so it must have more than ``2 * most``.
        """
        longest = max(_MOST_PER_TOKEN * most, _SHORT)
        if len(text) > longest or self._normalised_exceeds(text, longest):
            return True
        size = _BEGINNING * most
        while size < len(text):
            if len(self.tokens(text[:size])) > 2 * most:
                return True
            size *= 2
        return False

    def _normalised_exceeds(self, text: str, most: int) -> bool:
        """Return True if the normalised text has more than ``most`` characters."""
        normalizer, count = self._tokenizer.normalizer, 0
        if normalizer is None:
            return False
        for start in range(0, len(text), _NORMALISED):
            with self._refusals():
                count += len(normalizer.normalize_str(text[start : start + _NORMALISED]))
            if count > most:
                return True
        return False

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens within a text, with special tokens.

        Some decoders drop the space before the first token, so another token precedes them.
        """
        return self._decode([*self._before, *tokens])[self._start :]

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of the text of a token, which may be a part of a character."""
        text = self.text_of([token])
        if _REPLACEMENT not in text:
            return text.encode()
        if token in self._bytes:
            return bytes([self._bytes[token]])
        word = self._tokenizer.id_to_token(token) or ""
        own = bytes(_BYTES[letter] for letter in word if letter in _BYTES)
        return own if own.decode(errors="replace") == text else text.encode()

    def split(self, tokens: Sequence[int], text: str) -> list[str]:
        """Return the part of each token in the ``text`` of tokens; the parts together are the text.

        Tokens before the text, such as a mark of its beginning, have none.
        """
        stream = self.stream(skips_special=False)
        ends = [*accumulate(len(stream.add(token)) for token in tokens)]
        before = max(0, ends[-1] + len(stream.rest()) - len(text))
        cuts = [min(max(0, end - before), len(text)) for end in ends[:-1]]
        return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]

    def stream(self, *, skips_special: bool = True) -> TextOf:
        """Return an incremental decoder, of tokens that are not special only if it skips those."""
        return TextOf(self._decode, self._silent if skips_special else self._unknown, self._bytes)

    def _decode(self, tokens: Sequence[int]) -> str:
        with self._refusals():
            return self._tokenizer.decode(tokens, skip_special_tokens=False)

    @cached_property
    def _before(self) -> list[int]:
        """A token of plain text."""
        return self.tokens("a", is_begun=True)

    @cached_property
    def _start(self) -> int:
        """Length of the text of that token."""
        return len(self._decode(self._before))

    @cached_property
    def _special(self) -> set[int]:
        added = self._tokenizer.get_added_tokens_decoder()
        return {token for token, facts in added.items() if facts.special}

    def _silent(self, token: int) -> bool:
        return token in self._special or self._unknown(token)

    def _unknown(self, token: int) -> bool:
        return self._tokenizer.id_to_token(token) is None

    @cached_property
    def _bytes(self) -> dict[int, int]:
        """The tokens that the decoder takes for single bytes, such as `<0xE6>`."""
        words = {form.format(byte): byte for byte in range(256) for form in _BYTE_WORDS}
        tokens = {self._tokenizer.token_to_id(word): word for word in words}
        return {
            token: words[word]
            for token, word in tokens.items()
            if token is not None and self._decode([token]) != word
        }


_BYTE_WORDS = "<0x{:02X}>", "<0x{:02x}>"


def _byte_letters() -> Iterator[tuple[str, int]]:
    """Yield the letter that byte-level vocabularies write for each byte.

    Printable letters of Latin-1 stand for themselves, and letters from U+0100 for other bytes.
    """
    other = 0x100
    for byte in range(256):
        if chr(byte).isprintable() and byte not in (0x20, 0xAD):
            yield chr(byte), byte
        else:
            yield chr(other), byte
            other += 1


_BYTES = dict(_byte_letters())


class TextOf:
    """Incremental decoder of tokens to text; the parts together are the text of all tokens.

    `add` returns text that no later token can change, and `rest` the text that is left at the end.
    A character may take several tokens. ``byte_tokens`` that follow each other become text
    together: one of them that fits no character changes the text of all. Tokens that ``skips``
    accepts have no text.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        skips: Callable[[int], bool],
        byte_tokens: Mapping[int, int],
    ) -> None:
        self._decode, self._skips, self._byte_tokens = decode, skips, byte_tokens
        self._window: list[int] = []  # the last tokens
        self._done = 0  # characters of their text that were returned
        self._run = bytearray()

    def add(self, token: int) -> str:
        """Return the new text after the next token; it may be empty."""
        if self._skips(token):
            return ""
        self._window.append(token)
        if token in self._byte_tokens:
            self._run.append(self._byte_tokens[token])
            return ""
        self._run.clear()
        text = self._decode(self._window)
        open_end = int(text.endswith(_REPLACEMENT))  # the next token may complete it
        new = text[self._done : len(text) - open_end]
        self._done += len(new)
        if len(self._window) > _WINDOW:
            last = self._window[-_BEFORE:]
            if text := self._decode(last):  # the first text of all may lose its space
                self._window, self._done = last, len(text) - open_end
        return new

    def rest(self) -> str:
        """Return the text that was withheld, at the end."""
        text = self._decode(self._window)[self._done :] if self._window else ""
        self._done += len(text)
        return text

    @property
    def run(self) -> str:
        """The text of the last byte tokens, empty unless all their bytes are characters."""
        try:
            return self._run.decode()
        except UnicodeDecodeError:
            return ""

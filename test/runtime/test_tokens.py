"""Tokens of texts and texts of tokens, by tokenizers in the forms of known models."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from byte_tokenizers import FORMS, byte_id, byte_tokenizer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.grammar import Grammars
from tensoropt.runtime.text.tokens import Vocabulary


def saved(folder: Path, tokenizer: Tokenizer) -> Vocabulary:
    tokenizer.save(str(folder / "tokenizer.json"))
    return Vocabulary(folder / "tokenizer.json")


@pytest.fixture(scope="module", params=FORMS)
def form(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, Vocabulary]:
    tokenizer = byte_tokenizer(request.param)
    return tokenizer, saved(tmp_path_factory.mktemp("form"), tokenizer)


_TOKENS = st.lists(st.one_of(st.integers(3, 258), st.integers(0, 310)), max_size=40)


@settings(max_examples=25)
@given(_TOKENS)
@example([byte_id(byte) for byte in (0x7C, 0x61, 0x48, 0xA3, 0x9A)] + [280])
@example([byte_id(byte) for byte in "日本".encode()] + [1, byte_id(0xE6), 280, 280])
@example([byte_id(0xA3), 280] * 12)
@example([259, 300, 301, 302, 303, 304, 305, 259, 262])
def test_parts_of_a_text_are_those_of_the_whole(
    form: tuple[Tokenizer, Vocabulary], tokens: list[int]
) -> None:
    """What has been written after any token is a beginning of the text of all, and ends as it."""
    tokenizer, vocabulary = form
    for skips in (True, False):
        stream, text = vocabulary.stream(skips_special=skips), ""
        for token in tokens:
            text += stream.add(token)
            assert tokenizer.decode(tokens, skip_special_tokens=skips).startswith(text)
        assert text + stream.rest() == tokenizer.decode(tokens, skip_special_tokens=skips)
        assert stream.rest() == ""


_WORDS = (
    *("[U]", "▁a", "▁", "a", "b", "##c", ".", "n't", "a</w>", "|", "<pad>", "do", " ", "", " x "),
    *("<0xE6>", "<0x97>", "<0xA5>", "<0x41>", "<0xFF>", "<0xff>", "Ġa", "Ã", "©", "�"),
)


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.WordPiece(),
        decoders.Metaspace(),
        decoders.BPEDecoder(),
        decoders.CTC(),
        decoders.ByteLevel(),
        decoders.Fuse(),
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]),
        decoders.Sequence([decoders.ByteFallback(), decoders.ByteLevel()]),
    ],
)
def test_parts_of_texts_of_other_decoders(tmp_path: Path, decoder: decoders.Decoder) -> None:
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(_WORDS)}, unk_token="[U]"))
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken("[U]", special=True)])
    vocabulary, draw = saved(tmp_path, tokenizer), random.Random(1)
    for count in range(1, 60):
        tokens = [draw.randrange(len(_WORDS) + 2) for _ in range(count)]  # two have no word
        stream = vocabulary.stream()
        parts = [stream.add(token) for token in tokens]
        assert "".join(parts) + stream.rest() == tokenizer.decode(tokens)


@settings(max_examples=25)
@given(st.text(max_size=30))
def test_a_text_is_written_up_to_its_last_character(
    form: tuple[Tokenizer, Vocabulary], text: str
) -> None:
    """Only characters in the last run of bytes wait for the next token."""
    tokenizer, vocabulary = form
    tokens = tokenizer.encode(text, add_special_tokens=False).ids
    stream = vocabulary.stream()
    written = "".join(map(stream.add, tokens))
    assert tokenizer.decode(tokens) == written + stream.run
    assert stream.rest() == stream.run


@pytest.mark.parametrize("count", [20, 400])
def test_files_with_padding_or_truncation(tmp_path: Path, count: int) -> None:
    tokenizer = byte_tokenizer("llama")
    expected = tokenizer.encode("ab" * count).ids
    tokenizer.enable_padding(length=128, pad_id=0, pad_token="<unk>")
    tokenizer.enable_truncation(128)
    assert len(tokenizer.encode("ab" * count).ids) == 128
    vocabulary = saved(tmp_path, tokenizer)
    assert vocabulary.tokens("ab" * count) == expected
    assert "".join(vocabulary.split(expected, "ab" * count)) == "ab" * count


@pytest.mark.parametrize("has_changes", [True, False])
def test_grammars_read_the_same_tokens(tmp_path: Path, has_changes: bool) -> None:
    llguidance = pytest.importorskip("llguidance")
    tokenizer = byte_tokenizer("llama")
    if has_changes:
        tokenizer.enable_padding(length=16)
        tokenizer.enable_truncation(4)
    size = saved(tmp_path, tokenizer).size
    grammars = Grammars(tmp_path / "tokenizer.json", size, [2])
    expected = llguidance.LLTokenizer(byte_tokenizer("llama").to_str(), n_vocab=size)
    assert grammars._tokenizer.tokenize_str("the a or") == expected.tokenize_str("the a or")


def test_bytes_of_parts_of_characters(form: tuple[Tokenizer, Vocabulary]) -> None:
    tokenizer, vocabulary = form
    for text in ("日", "é", "😀", "the a", "�"):
        tokens = tokenizer.encode(text, add_special_tokens=False).ids
        found = b"".join(map(vocabulary.bytes_of, tokens))
        assert found.decode().strip() == text


def test_every_token_has_its_own_bytes(form: tuple[Tokenizer, Vocabulary]) -> None:
    vocabulary = form[1]
    alone = {vocabulary.bytes_of(token) for token in range(3, 259)}
    assert alone >= {bytes([byte]) for byte in range(0x80, 0x100)}


def test_a_panic_of_the_library_is_an_error(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({" ": 0, "a": 1}, unk_token="a"))
    tokenizer.decoder = decoders.Strip(" ", 1, 1)
    vocabulary = saved(tmp_path, tokenizer)
    with pytest.raises(UserError, match=r"tokenizer\.json: fails on this text: PanicException"):
        vocabulary.stream().add(0)


@pytest.mark.parametrize("text", ["a\ud800", 5])
def test_what_is_no_text_is_an_error(tmp_path: Path, text: str) -> None:
    vocabulary = saved(tmp_path, byte_tokenizer("llama"))
    with pytest.raises(UserError, match=r"tokenizer\.json: fails on this text"):
        vocabulary.tokens(text)


def test_a_text_is_too_long_after_normalisation(tmp_path: Path) -> None:
    """A few of its characters prove it: the whole would take gigabytes."""
    tokenizer = byte_tokenizer("llama")
    tokenizer.normalizer = normalizers.Replace("a", "bc" * 1000)
    vocabulary = saved(tmp_path, tokenizer)
    assert vocabulary.exceeds("a" * 100_000, 10_000)
    assert not vocabulary.exceeds("b" * 100, 10_000)


_SHORT = 1 << 16


@pytest.mark.parametrize(("count", "exceeds"), [(10, False), (_SHORT, False), (_SHORT + 1, True)])
def test_too_many_characters_for_any_text(tmp_path: Path, count: int, exceeds: bool) -> None:
    tokenizer = byte_tokenizer("llama")
    tokenizer.normalizer = normalizers.Replace("x", "")
    assert saved(tmp_path, tokenizer).exceeds("x" * count, 8) == exceeds

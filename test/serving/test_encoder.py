"""Tokens of texts for encoders, and their limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.isolation import TextFailedError
from tensoropt.runtime.text.limits import MOST_EMBEDDED
from tensoropt.serving.encoder import Encoder, find_encoder
from tensoropt.serving.protocol.tensors import TensorSpec

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "world", "wor", "##d", "!"]
ENDS = [2, 3]


def write_bert(path: Path, *, length: int | None = None) -> None:
    """Write a tokenizer in BERT's form; with a ``length``, as sentence encoders have it."""
    tokenizer = Tokenizer(models.WordPiece({w: n for n, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    if length is not None:
        tokenizer.enable_padding(length=length)
        tokenizer.enable_truncation(length)
    tokenizer.save(str(path))


def encoder_of(folder: Path, size: int | str = "tokens", **more: Any) -> Encoder:
    path = folder / "tokenizer.json"
    if not path.exists():
        write_bert(path, length=128)
    inputs = (TensorSpec("input_ids", "int64", ("batch", size), more.pop("allowed", {})),)
    output = TensorSpec("last_hidden_state", "float32", ("batch", size, 8))
    return Encoder(path, inputs, output, "mean", **more)


def test_a_file_with_padding_and_truncation(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path)
    assert encoder.tokens_of("hello world") == [2, 4, 5, 3]
    assert encoder.tokens_of("hello " * 400) == [2, *[4] * 400, 3]


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("hello " * 15, "17"),
        ([4] * 17, "17"),
        ("hello " * 500, "more, in 3000 characters"),
        ("hello " * 4_000_000, "more, in 24000000 characters"),
        (" " * 24_000_000, "more, in 24000000 characters"),
        ("ﷺ" * 4_000, "more, in 4000 characters"),  # 18 characters each, once normalised
    ],
)
@pytest.mark.parametrize(
    "limits",
    [
        {"context": 16},
        {"size": 16},
        {"size": 16, "context": 100},
        {"context": 99, "allowed": {"tokens": range(4, 17, 4)}},
    ],
)
def test_texts_that_are_too_long(
    tmp_path: Path, text: str | Sequence[int], got: str, limits: dict[str, Any]
) -> None:
    encoder = encoder_of(tmp_path, **limits)
    if text == "ﷺ" * 4_000:
        tokenizer = Tokenizer.from_file(str(encoder.tokenizer))
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.save(str(encoder.tokenizer))
    with pytest.raises(UserError, match=f"^input: expected at most 16 tokens, got: {got}$"):
        encoder.tokens_of(text)
    assert len(encoder.tokens_of("hello " * 14)) == 16


@pytest.mark.parametrize("token", [-1, len(WORDS), 1 << 31, 1 << 63, 10**4000])
def test_tokens_that_the_model_lacks(tmp_path: Path, token: int) -> None:
    with pytest.raises(UserError, match=r"^input: expected tokens from 0 to 9 - 1, got: -?\d+$"):
        encoder_of(tmp_path).tokens_of([4, token])


@pytest.mark.parametrize(
    ("configured", "asked", "most"),
    [(None, None, MOST_EMBEDDED), (512, None, 512), (512, 64, 64), (None, 64, 64), (64, 512, 64)],
)
def test_the_limit_of_the_configuration(
    tmp_path: Path, configured: int | None, asked: int | None, most: int
) -> None:
    write_bert(tmp_path / "tokenizer.json")
    document = {} if configured is None else {"text": {"context": configured, "end": []}}
    plan: Any = SimpleNamespace(
        folder=tmp_path, files={"tokenizer.json": ""}, document=json.loads(json.dumps(document))
    )
    inputs, output = encoder_of(tmp_path).inputs, encoder_of(tmp_path).output
    encoder = find_encoder(plan, inputs, [output], "mean", asked)
    assert encoder is not None
    assert encoder.most == most


def test_an_embedding_that_is_not_finite_is_an_error(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path)
    large = np.full((1, 4, 2), 1e30, np.float32)
    np.testing.assert_allclose(encoder.embed(large, 3), [0.5**0.5] * 2)
    large[0, 3] = np.nan  # of padding
    assert np.isfinite(encoder.embed(large, 3)).all()
    for value in (np.nan, np.inf):
        large[0, 1, 0] = value
        why = "output 'last_hidden_state': expected finite numbers"
        with pytest.raises(TextFailedError, match=why):
            encoder.embed(large, 3)

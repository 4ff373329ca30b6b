"""cuDNN has a plan for every form that the compiler fuses, with the predicted workspace."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from described_gpus import GPUS
from form_plans import Plans

from tensoropt.runtime.support.cudnn_attention import AttentionForm, refusal, workspace_bytes

FOLDER = os.environ.get("TENSOROPT_CUDNN_CHECK")
ROUNDING_BYTES = 256


def form(
    batch: int,
    heads: int,
    key_heads: int,
    tokens: int,
    size: int,
    *,
    keys: int = 0,
    **options: object,
) -> AttentionForm:
    """Return a causal attention in bfloat16."""
    sizes = batch, heads, key_heads, tokens, keys or tokens, size, size
    return replace(AttentionForm("bfloat16", *sizes, causal=True), **options)  # type: ignore[arg-type]


LLAMA = {
    f"Llama 3.1 {name}, {tokens} tokens, {heads} of its heads": form(
        1, heads, max(1, heads // group), tokens, 128
    )
    for name, group, counts in (("8B", 4, (32, 4)), ("70B", 8, (64, 8)), ("405B", 16, (128, 16)))
    for tokens in (8192, 131072)
    for heads in counts
}
PLAIN = AttentionForm("bfloat16", 2, 16, 16, 1000, 1001, 64, 64)
FORMS = LLAMA | {
    "Llama 3.1 8B, 4 texts": form(4, 32, 8, 8192, 128),
    "Llama 3.1 8B, an eighth of the rows": form(1, 32, 8, 1024, 128, keys=8192, offset=True),
    "Llama 3.1 405B, a sixteenth of the rows": form(
        1, 16, 1, 8192, 128, keys=131072, offset=True
    ),
    "GPT-2": form(8, 12, 12, 1024, 64),
    "GPT-2 in float16": form(8, 12, 12, 1024, 64, dtype="float16"),
    "few tokens": form(8, 12, 12, 128, 64),
    "BERT with a mask of padding": replace(PLAIN, bias_sizes=(2, 1, 1)),
    "BERT with lengths": replace(PLAIN, lengths=True),
    "T5, the bias of which is trained": replace(
        PLAIN, bias_sizes=(1, 16, 1000), trains_bias=True
    ),
    "T5, causal": replace(
        PLAIN, keys=1000, causal=True, bias_sizes=(1, 16, 1000), trains_bias=True
    ),
    "cross attention": AttentionForm("bfloat16", 2, 16, 4, 333, 1500, 80, 80),
    "Mistral": form(1, 32, 8, 8192, 128, window=4096),
    "Mistral, rows in the middle": form(
        1, 32, 8, 1024, 128, keys=8192, window=4096, offset=True
    ),
    "gpt-oss": form(1, 64, 8, 4096, 64, window=128),
    "Gemma, shared key heads": form(2, 16, 8, 2048, 256),
    "Gemma 7B": form(2, 16, 16, 2048, 256),
    "Gemma 2": form(2, 16, 8, 2048, 256, softcap=50.0),
    "Gemma 2, rows in the middle": form(
        1, 16, 8, 1024, 128, keys=8192, window=4096, offset=True, softcap=50.0
    ),
    "a limit of scores of few tokens": form(2, 8, 8, 128, 128, softcap=50.0),
    "a limit of scores, all keys": replace(PLAIN, softcap=30.0),
    "a limit of scores, a trained bias": replace(
        PLAIN, softcap=30.0, bias_sizes=(1, 16, 1000), trains_bias=True
    ),
    "DeepSeek": form(1, 16, 16, 2048, 192, value_size=128),
    "causal with lengths": form(2, 16, 4, 1024, 64, lengths=True),
    "more queries than keys": form(2, 16, 4, 1024, 64, keys=512),
    "a few rows": form(1, 1, 1, 3, 16, keys=5),
    "one query": form(2, 16, 4, 1, 64, keys=512, offset=True),
}  # fmt: skip
REFUSED = {
    "one query and one key": form(2, 4, 4, 1, 64),
    "large heads": form(2, 4, 4, 128, 264),
    "odd heads": form(2, 4, 4, 128, 60),
    "a bias with an offset": form(2, 4, 4, 128, 64, keys=256, offset=True, bias_sizes=(1, 1, 128)),
    "a window with more queries than keys": form(2, 4, 4, 256, 64, keys=128, window=64),
    "a limit of scores with lengths": form(2, 4, 4, 128, 64, lengths=True, softcap=50.0),
    "heads of unlike numbers": form(2, 4, 3, 128, 64),
}


@functools.cache
def plans() -> Plans:
    if not FOLDER:
        pytest.skip("cuDNN is not installed, expected it after: make cudnn-check")
    return Plans(Path(FOLDER))


@pytest.mark.parametrize("architecture", GPUS)
@pytest.mark.parametrize("name", FORMS)
def test_a_form_has_plans_of_the_predicted_workspace(name: str, architecture: int) -> None:
    for one in directions(FORMS[name]):
        workspace = plans().workspace_bytes(one, architecture)
        reason = refusal(one, architecture)
        if reason is None:
            assert isinstance(workspace, int), workspace
            lengths_bytes = 8 * one.batch if one.lengths else 0
            unused = workspace_bytes(one, architecture) - lengths_bytes - workspace
            assert 0 <= unused <= ROUNDING_BYTES
        else:
            assert isinstance(workspace, str), reason


@pytest.mark.parametrize("architecture", GPUS)
@pytest.mark.parametrize("name", REFUSED)
def test_cudnn_has_none_of_other_forms(name: str, architecture: int) -> None:
    gradient = replace(REFUSED[name], gradient=True)
    assert refusal(gradient, architecture) is not None
    assert isinstance(plans().workspace_bytes(gradient, architecture), str)


def directions(one: AttentionForm) -> Iterator[AttentionForm]:
    yield replace(one, trains_bias=False)
    yield replace(one, gradient=True)

"""Decoders with caches of 8-bit integers: their scores, texts on ranks, and refused models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from handmade_decoder import VOCABULARY, greedy, write_decoder
from onnx import numpy_helper

from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.compiler.exporter.standard.int8_caches import read_sample, write_int8_caches
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.text.session import TextSession

SIZES = {"layers": 2, "heads": 4, "shared": 2, "size": 16}


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    return np.random.default_rng(1).integers(0, VOCABULARY, 48).tolist()


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("m") / "m.onnx", in_place=True, **SIZES)


def run(model: Path, tokens: list[int], kind: type) -> list[np.ndarray]:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    ids = np.array([tokens])
    empty = np.zeros((1, SIZES["shared"], 0, SIZES["size"]), kind)
    pasts = [own.name for own in session.get_inputs() if own.name.startswith("past")]
    fed = {"input_ids": ids, "attention_mask": np.ones_like(ids), **dict.fromkeys(pasts, empty)}
    return session.run(None, fed)


def test_caches_are_the_rounded_ones(decoder: Path, tokens: list[int]) -> None:
    target = decoder.with_name("int8.onnx")
    effect = write_int8_caches(decoder, target, tokens)
    before, after = run(decoder, tokens, np.float32), run(target, tokens, np.int8)
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load(target).graph.initializer}
    half = len(tokens) // 2
    for number, (exact, rounded) in enumerate(zip(before[1:], after[1:], strict=True)):
        part = ("key", "value")[number % 2]
        scale = stored[f"past_key_values.{number // 2}.{part}.scale"]
        np.testing.assert_allclose(scale, np.abs(exact[:, :, :half]).max(2, keepdims=True) / 127)
        assert rounded.dtype == np.int8
        if number < 2:  # later layers read rounded values
            np.testing.assert_allclose(
                (rounded * scale)[:, :, :half], exact[:, :, :half], atol=0.51 * scale.max()
            )
    same = before[0][0, half:].argmax(-1) == after[0][0, half:].argmax(-1)
    assert effect.same == pytest.approx(same.mean())
    assert (effect.caches, effect.tokens) == (4, len(tokens) - half)
    assert 0 < effect.divergence < 0.01
    logits = before[0][0, half:].astype(np.float64)
    likely = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    following = likely[np.arange(len(logits) - 1), tokens[half + 1 :]]
    assert effect.perplexity == pytest.approx(np.exp(-following.mean()))


def rotate(model: Path, context: int) -> None:
    """Rotate keys and queries by angles of ``context`` positions."""
    proto = onnx.load(model)
    angles = np.outer(np.arange(context), 0.5 ** np.arange(SIZES["size"] // 2)).astype(np.float32)
    for name, array in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    for made in proto.graph.node:
        if made.op_type == "GroupQueryAttention":
            made.input[:] = [*made.input[:7], "cos", "sin"]
            made.attribute.append(onnx.helper.make_attribute("do_rotary", 1))
    onnx.save(proto, model)


@pytest.mark.parametrize("known", ["angles", "config"])
def test_a_sample_is_cut_to_the_context(known: str, tokens: list[int], tmp_path: Path) -> None:
    model = write_decoder(tmp_path / "m.onnx", in_place=True, **SIZES)
    context = len(tokens) - 16
    if known == "config":
        (tmp_path / "config.json").write_text(f'{{"max_position_embeddings": {context}}}')
    else:
        rotate(model, context)
    effect = write_int8_caches(model, tmp_path / "int8.onnx", tokens)
    assert effect.tokens == context // 2


def test_texts_on_two_ranks_are_those_of_one_device(
    decoder: Path, tokens: list[int], tmp_path: Path
) -> None:
    target = decoder.with_name("ranks.onnx")
    write_int8_caches(decoder, target, tokens)
    plans = {}
    for model in (decoder, target):
        plans[model] = tmp_path / model.stem
        flags = ["--mesh", "2", "--pin", "past_key_values.*=S(1)", "--dim", "past=1..40"]
        assert compile_model([str(model), *flags, "-o", str(plans[model])]) == 0
    static = [
        json.loads((plan / "plan.json").read_text())["predicted"]["static_bytes"]
        for plan in plans.values()
    ]
    a_token = SIZES["layers"] * 2 * SIZES["size"] * (4 - 1)  # one head per rank
    assert static[0] - static[1] > 30 * a_token
    prompts = [tokens[:3], tokens[3:10]]
    with TextSession(plans[target], threads=1) as session:
        found = [[*text.tokens] for text in session.generate(prompts, max_tokens=12)]
    assert found == [greedy(target, prompt, 12) for prompt in prompts]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"in_place": False}, "read by GroupQueryAttention alone"), ({}, "floating-point caches")],
)
def test_models_that_are_refused(
    decoder: Path, tokens: list[int], tmp_path: Path, options: dict[str, bool], message: str
) -> None:
    model = tmp_path / "m.onnx"
    if options:
        write_decoder(model, **options)
    else:
        write_int8_caches(decoder, model, tokens)
    with pytest.raises(UserError, match=message):
        write_int8_caches(model, tmp_path / "x.onnx", tokens)
    assert not (tmp_path / "x.onnx").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.json", "[1, 2]", "at least 16 tokens, got: 2"),
        ("s.json", "[1, 'a']", "expected JSON"),
        ("s.json", '[1, "a"]', "a list of whole numbers"),
        ("s.txt", "words", "tokenizer.json: no such file"),
    ],
)
def test_samples_that_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        read_sample(tmp_path / name, tmp_path / "m.onnx")


def test_tokens_beyond_the_vocabulary(decoder: Path) -> None:
    with pytest.raises(UserError, match="ONNX Runtime"):
        write_int8_caches(decoder, decoder.with_name("y.onnx"), [VOCABULARY + 5] * 20)

"""Embeddings of texts by encoders on one and two ranks, asked by OpenAI's client."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import openai
import pytest
from fake_server import Server
from letters import LETTERS, write_letters
from onnx import TensorProto, helper, numpy_helper
from openai_server import client_of, serving

from tensoropt.compiler.cli.opt import main as compile_model

WIDTH = 8
RANDOM = np.random.default_rng(1)
WORDS = RANDOM.normal(size=(len(LETTERS) + 1, WIDTH)).astype(np.float32)
WEIGHTS = RANDOM.normal(size=(WIDTH, WIDTH)).astype(np.float32)


def write_encoder(path: Path) -> None:
    """Write an encoder: each token is mixed with the mean of the tokens that the mask shows."""
    node = helper.make_node
    nodes = [
        node("Gather", ["words", "input_ids"], ["x"], "gather"),
        node("Cast", ["attention_mask"], ["m"], "cast", to=TensorProto.FLOAT),
        node("Unsqueeze", ["m", "last"], ["shown"], "unsqueeze"),
        node("Mul", ["x", "shown"], ["y"], "hide"),
        node("ReduceSum", ["y", "tokens"], ["sums"], "sum"),
        node("ReduceSum", ["shown", "tokens"], ["counts"], "count"),
        node("Div", ["sums", "counts"], ["mean"], "mean"),
        node("Add", ["x", "mean"], ["z"], "mix"),
        node("MatMul", ["z", "weights"], ["last_hidden_state"], "product"),
    ]
    weights = {"words": WORDS, "weights": WEIGHTS}
    axes = {"last": np.array([2]), "tokens": np.array([1])}
    value, shape = helper.make_tensor_value_info, ["batch", "sequence"]
    names = ("input_ids", "attention_mask")
    graph = helper.make_graph(
        nodes,
        "encoder",
        [value(name, TensorProto.INT64, shape) for name in names],
        [value("last_hidden_state", TensorProto.FLOAT, [*shape, WIDTH])],
        [numpy_helper.from_array(a, name) for name, a in {**weights, **axes}.items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def embedded(text: str, pooling: str) -> np.ndarray:
    """Return the embedding of one text, by numpy."""
    x = WORDS[[LETTERS.index(letter) for letter in text]]
    rows = (x + x.mean(axis=0)) @ WEIGHTS
    found = rows.mean(axis=0) if pooling == "mean" else rows[0]
    return found / np.linalg.norm(found)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    write_encoder(folder / "m.onnx")
    write_letters(folder / "tokenizer.json")
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 400}))
    for name, flags in {
        "free": ["--mesh", "2", "--dim", "batch=4"],
        "fixed": ["--mesh", "1", "--dim", "batch=2", "--dim", "sequence=12"],
    }.items():
        plan = ["-o", str(folder / name)]
        assert compile_model([str(folder / "m.onnx"), *flags, *plan]) == 0
    return folder


@pytest.fixture(scope="module")
def server(plans: Path) -> Iterator[Server]:
    with serving(f"free={plans / 'free'}", f"fixed={plans / 'fixed'}") as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with client_of(server) as found:
        yield found


TEXTS = ["one", "another text", "a", "four", "and five"]


@pytest.mark.parametrize("model", ["free", "fixed"])
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_texts_of_any_length(client: openai.OpenAI, model: str, encoding: Any) -> None:
    found = client.embeddings.create(model=model, input=TEXTS, encoding_format=encoding)
    assert [entry.index for entry in found.data] == list(range(5))
    for entry, text in zip(found.data, TEXTS, strict=True):
        own: Any = entry.embedding
        if encoding == "base64" and isinstance(own, str):
            own = np.frombuffer(base64.b64decode(own), "<f4")
        np.testing.assert_allclose(own, embedded(text, "mean"), atol=1e-5)
    assert found.usage.prompt_tokens == found.usage.total_tokens == len("".join(TEXTS))


def test_tokens_and_single_texts(client: openai.OpenAI) -> None:
    tokens = [LETTERS.index(letter) for letter in "abc"]
    given: Any
    for given in ("abc", ["abc"], tokens, [tokens]):
        (entry,) = client.embeddings.create(model="free", input=given).data
        np.testing.assert_allclose(entry.embedding, embedded("abc", "mean"), atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"model": "none"}, "model 'none': not an encoder here"),
        ({"input": ""}, "input: is empty"),
        ({"input": []}, "input"),
        ({"model": "fixed", "input": "a" * 13}, "input: expected at most 12 tokens, got: 13"),
        ({"dimensions": 5}, "dimensions: expected 8, got: 5"),
        ({"encoding_format": "text"}, "encoding_format"),
        ({"input": [[1 << 40]]}, r"input: expected tokens from 0 to \d+ - 1, got: 1099511627776"),
        ({"input": [5, 1 << 63]}, r"input: expected tokens from 0 to \d+ - 1, got: 9223372036854"),
        (
            {"input": "a" * 600_000},
            "input: expected at most 400 tokens, got: more, in 600000 char",
        ),
        ({"input": [[5] * 401]}, "input: expected at most 400 tokens, got: 401"),
        ({"input": "ab" * 201}, "input: expected at most 400 tokens, got: 402"),
    ],
)
def test_refused(client: openai.OpenAI, fields: Any, why: str) -> None:
    with pytest.raises(openai.APIStatusError, match=why) as caught:
        client.embeddings.create(**{"model": "free", "input": "a", **fields})
    assert caught.value.type == "invalid_request_error"


def test_it_is_one_of_the_models(server: Server, client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} == {"free", "fixed"}
    assert client.models.retrieve("free").object == "model"
    text = httpx.get(f"http://127.0.0.1:{server.http}/metrics").text
    assert 'tensoropt_requests_total{model="free",protocol="openai",status="OK"}' in text


def test_the_first_token_and_a_context(plans: Path) -> None:
    with (
        serving(f"free={plans / 'free'}", "--pooling", "cls", "--context", "20") as server,
        client_of(server) as client,
    ):
        found = client.embeddings.create(model="free", input=TEXTS[:2]).data
        with pytest.raises(openai.BadRequestError, match="input: expected at most 20 tokens"):
            client.embeddings.create(model="free", input="a" * 21)
    for entry, text in zip(found, TEXTS, strict=False):
        np.testing.assert_allclose(entry.embedding, embedded(text, "cls"), atol=1e-5)


def test_long_texts_do_not_delay_the_end_of_a_server(plans: Path) -> None:
    """They are refused by their length; others are answered in between."""
    with serving(f"free={plans / 'free'}", "--grace", "20") as server:
        url = f"http://127.0.0.1:{server.http}/v1/embeddings"

        def ask(text: str) -> int:
            return httpx.post(url, json={"model": "free", "input": text}, timeout=120).status_code

        with ThreadPoolExecutor(9) as threads:
            statuses = [threads.submit(ask, "a" * (20 << 20)) for _ in range(8)]
            assert ask("one") == 200
            assert {status.result() for status in statuses} == {400}
            for _ in range(8):
                threads.submit(ask, "a b" * (7 << 20))
            begin = time.monotonic()
            server.process.terminate()
            status, _ = server.ended()
        assert status == 0
        assert time.monotonic() - begin < 40

"""OpenAI's API over texts of byte tokens, which need no ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from byte_tokenizers import FORMS, byte_id
from fake_texts import ByteSession, VectorSession, encoder_of
from fastapi.testclient import TestClient
from tokenizers import decoders

from tensoropt.runtime.text.isolation import TextFailedError
from tensoropt.runtime.text.limits import MOST_TOKENS
from tensoropt.serving.http.app import make_app
from tensoropt.serving.http.body import Bodies
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.model import Model
from tensoropt.serving.openai.routes import openai_routes
from tensoropt.serving.options import ServingOptions, TextLimits
from tensoropt.serving.service import Service
from tensoropt.serving.text_model import TextModel


@pytest.fixture(params=FORMS)
def session(request: pytest.FixtureRequest, tmp_path: Path) -> ByteSession:
    return ByteSession(tmp_path, request.param)


@pytest.fixture
def llama(tmp_path: Path) -> ByteSession:
    return ByteSession(tmp_path)


def client_of(session: ByteSession) -> TestClient:
    metrics, bodies = Metrics(), Bodies(1 << 16)
    encoder = encoder_of(session)
    tensors = encoder.inputs, [encoder.output]
    models = {"e": Model("e", *tensors, VectorSession(), ServingOptions(), metrics, encoder)}
    texts = {"m": TextModel("m", session, TextLimits(), metrics)}
    service = Service(models, metrics, 20.0, texts)
    app = make_app(service, bodies, openai_routes(service, bodies, 20.0))
    return TestClient(app, raise_server_exceptions=False)


def _events(text: str) -> Iterator[Any]:
    for line in text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def _chat(**more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "the"}]
    return {"model": "m", "messages": messages, "max_tokens": 40, "seed": 1, **more}


def test_bytes_of_tokens_are_those_of_the_text(session: ByteSession) -> None:
    with client_of(session) as client:
        asked = _chat(logprobs=True, top_logprobs=1)
        whole = client.post("/v1/chat/completions", json=asked).json()["choices"][0]
        answer = client.post("/v1/chat/completions", json={**asked, "stream": True})
    entries = whole["logprobs"]["content"]
    own = b"".join(bytes(entry["bytes"]) for entry in entries)
    assert any(0x80 <= entry["bytes"][0] < 0xC0 for entry in entries if entry["bytes"])
    text = whole["message"]["content"]
    assert "�" in text
    # Bytes that are no characters are replaced in the text, by some decoders with their neighbours.
    kept = [letter for letter in text if letter != "�"]
    assert set(kept) <= set(own.decode(errors="ignore"))
    streamed = [event["choices"][0] for event in _events(answer.text)]
    assert "".join(part["delta"].get("content") or "" for part in streamed) == text
    assert [entry for part in streamed for entry in part["logprobs"]["content"]] == entries


def test_a_stop_of_a_byte_token_does_not_wait_for_the_next(llama: ByteSession) -> None:
    """A line break of Llama 2 and Mistral is a byte token."""
    tokens = [262, 263, byte_id(0x0A), 264]
    llama._pool._chosen = lambda new: [(new["key"], token, None) for token in tokens]  # type: ignore
    (found,) = llama.generate("the", max_tokens=4, stop="\n")
    assert (found.text, found.tokens, found.finish) == ("cd", tuple(tokens[:3]), "stop")
    (found,) = llama.generate("the", max_tokens=4)
    assert found.text.count("\n") == 1


def test_a_text_that_ends_within_a_character(llama: ByteSession) -> None:
    tokens = [262, *map(byte_id, "日本".encode()[:5])]
    llama._pool._chosen = lambda new: [(new["key"], token, None) for token in tokens]  # type: ignore
    (found,) = llama.generate("the", max_tokens=6)
    assert llama._vocabulary is not None
    assert found.text == llama._vocabulary._tokenizer.decode(tokens)
    assert found.text.endswith("�")


def test_a_text_without_a_known_context_has_a_limit(llama: ByteSession) -> None:
    llama._context = None
    ((message, _),) = llama._texts([[5] * 10], max_tokens=1 << 62)
    assert message["room"] == MOST_TOKENS


@pytest.mark.parametrize("path", ["completions", "chat/completions", "embeddings"])
def test_limits_are_the_same_for_all(llama: ByteSession, path: str) -> None:
    long = "a b" * 21_000
    asked: dict[str, Any] = {
        "completions": {"model": "m", "prompt": long},
        "chat/completions": {"model": "m", "messages": [{"role": "user", "content": long}]},
        "embeddings": {"model": "e", "input": long},
    }[path]
    with client_of(llama) as client:
        answer = client.post(f"/v1/{path}", json=asked)
    assert answer.status_code == 400
    assert "in 63000 characters" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("embeddings", {"input": [1 << 63]}),
        ("embeddings", {"input": [[5], [1 << 64]]}),
        ("completions", {"prompt": [1 << 63]}),
        ("completions", {"prompt": [[5], [10**30]]}),
        ("completions", {"prompt": "a", "stop_token_ids": [1 << 63]}),
        ("completions", {"prompt": "a", "logit_bias": {"999999999": 1}}),
        ("completions", {"prompt": "a", "repetition_penalty": 5e-324}),
        ("completions", {"prompt": "a", "repetition_penalty": 1e-9}),
        ("completions", {"prompt": "a", "max_tokens": 1 << 64}),
    ],
)
def test_numbers_that_are_refused(llama: ByteSession, path: str, asked: dict[str, Any]) -> None:
    with client_of(llama) as client:
        answer = client.post(f"/v1/{path}", json={"model": path[0].replace("c", "m"), **asked})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_panic_of_the_tokenizer_is_refused_as_json(llama: ByteSession) -> None:
    assert llama._vocabulary is not None
    llama._vocabulary._tokenizer.decoder = decoders.Strip("a", 1, 1)
    with client_of(llama) as client:
        asked = {"model": "m", "prompt": [260], "echo": True}
        answer = client.post("/v1/completions", json=asked)
    assert answer.status_code == 400
    assert "PanicException" in answer.json()["error"]["message"]


def test_a_text_that_fails_on_the_ranks_is_an_error_of_the_server(llama: ByteSession) -> None:
    def fail(new: Any) -> Any:
        raise TextFailedError("scores: expected finite numbers, got: nan")

    llama._pool._chosen = fail  # type: ignore[attr-defined]
    with client_of(llama) as client:
        answer = client.post("/v1/completions", json={"model": "m", "prompt": "a"})
    assert answer.status_code == 500
    assert answer.json()["error"] == {
        "message": "scores: expected finite numbers, got: nan",
        "type": "server_error",
        "param": None,
        "code": None,
    }

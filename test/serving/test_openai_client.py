"""OpenAI's client and a server with two ranks: every feature of texts."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import numpy as np
import openai
import pydantic
import pytest
from fake_server import Server
from handmade_decoder import log_probabilities
from letters import LETTERS, letters_plan
from openai_server import TEMPLATE, client_of, serving

TALK: Any = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("letters")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(f"m={letters_plan(folder, template=TEMPLATE)}") as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with client_of(server) as found:
        yield found


@pytest.fixture
def grammars() -> None:
    pytest.importorskip("llguidance", reason="pip install tensoropt[text]")


def complete(client: openai.OpenAI, **how: Any) -> Any:
    return client.completions.create(**{"model": "m", "prompt": "ab", "max_tokens": 12, **how})


def chat(client: openai.OpenAI, **how: Any) -> Any:
    return client.chat.completions.create(**{"model": "m", "messages": TALK, **how})


def test_several_choices_and_seeds(client: openai.OpenAI) -> None:
    found = complete(client, n=3, seed=1)
    texts = [choice.text for choice in found.choices]
    assert len({*texts}) == 3
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    assert [choice.text for choice in complete(client, n=3, seed=1).choices] == texts
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (2, 36)
    echoed = complete(client, seed=1, echo=True, prompt=["ab", "b"], n=2)
    assert [c.text[:2] for c in echoed.choices[:2]] == ["ab", "ab"]
    assert echoed.choices[0].text == "ab" + texts[0]


def test_the_best_is_the_likeliest(client: openai.OpenAI) -> None:
    every = complete(client, n=4, seed=2, logprobs=0)
    means = [sum(c.logprobs.token_logprobs) / len(c.logprobs.tokens) for c in every.choices]
    (best,) = complete(client, best_of=4, seed=2, logprobs=0).choices
    assert best.text == every.choices[means.index(max(means))].text


def test_probabilities(client: openai.OpenAI) -> None:
    (choice,) = complete(client, temperature=0, logprobs=3).choices
    own = choice.logprobs
    assert "".join(own.tokens) == choice.text
    assert own.text_offset == list(range(12))
    for token, value, top in zip(own.tokens, own.token_logprobs, own.top_logprobs, strict=True):
        assert top[token] == value == max(top.values())
        assert len(top) == 3
        assert 0 < sum(map(math.exp, top.values())) < 1
    (choice,) = chat(client, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2).choices
    assert "".join(entry.token for entry in choice.logprobs.content) == choice.message.content
    for entry in choice.logprobs.content:
        assert bytes(entry.bytes).decode() == entry.token
        assert entry.top_logprobs[0].logprob == entry.logprob
    parts = chat(client, max_tokens=4, temperature=0, logprobs=True, stream=True)
    values = [e.logprob for part in parts for e in part.choices[0].logprobs.content]
    # The prompt's last token is read alone now, so sums may round otherwise.
    assert values == pytest.approx([entry.logprob for entry in choice.logprobs.content], abs=1e-6)


def test_a_second_turn_of_a_chat(client: openai.OpenAI) -> None:
    talk: Any = [{"role": "user", "content": "Once upon a time there was"}]
    first = chat(client, messages=talk, max_tokens=9, temperature=0)
    answer = {"role": "assistant", "content": first.choices[0].message.content}
    talk = [*talk, answer, {"role": "user", "content": "And then?"}]
    second = chat(client, messages=talk, max_tokens=3)
    assert first.usage.prompt_tokens_details.cached_tokens < first.usage.prompt_tokens / 2
    # Of the answer's tokens the last was not read.
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached >= first.usage.prompt_tokens + 9 - 1
    assert cached < second.usage.prompt_tokens


@pytest.fixture(scope="module")
def scores(server: Server, folder: Path) -> Callable[[str], np.ndarray]:
    """Return the logarithms of probabilities after each letter, by one device."""
    return lambda letters: log_probabilities(folder / "m.onnx", [*map(LETTERS.index, letters)])


@pytest.mark.parametrize("prompt", ["a", "Once upon a time", "ab" * 200])
def test_probabilities_of_prompts(
    client: openai.OpenAI, scores: Callable[[str], np.ndarray], prompt: str
) -> None:
    """As evaluations ask for them: without a completion, or with one token."""
    for form in (prompt, [*map(LETTERS.index, prompt)]):
        how: Any = {"echo": True, "logprobs": 3, "temperature": 0, "prompt": form}
        for count in (0, 1):
            found = complete(client, max_tokens=count, **how)
            (choice,) = found.choices
            assert choice.text[: len(prompt)] == prompt
            assert found.usage.completion_tokens == len(choice.text) - len(prompt) == count
            check_probabilities(choice, scores(choice.text))
    both = complete(client, max_tokens=2, n=2, seed=1, **{**how, "temperature": 1})
    for choice in both.choices:
        check_probabilities(choice, scores(choice.text))


def check_probabilities(choice: Any, wanted: np.ndarray, count: int = 3) -> None:
    """Check those of a prompt and its completion; ``wanted`` are those after each letter."""
    own = choice.logprobs
    assert "".join(own.tokens) == choice.text
    assert own.text_offset == [*range(len(choice.text))]
    assert (own.token_logprobs[0], own.top_logprobs[0]) == (None, None)
    for place, letter in enumerate(choice.text[1:]):
        value, top = own.token_logprobs[place + 1], own.top_logprobs[place + 1]
        assert top[letter] == value == pytest.approx(wanted[place, LETTERS.index(letter)], abs=1e-4)
        likeliest = sorted(top.values())[-count:]
        np.testing.assert_allclose(likeliest, np.sort(wanted[place])[-count:], atol=1e-4)


def test_probabilities_of_prompts_in_a_stream(client: openai.OpenAI) -> None:
    how: Any = {"echo": True, "logprobs": 1, "max_tokens": 4, "prompt": ["abc", "b"], "seed": 5}
    whole, parts = complete(client, **how), [*complete(client, stream=True, **how)]
    for choice in whole.choices:
        own = [p.choices[0] for p in parts if p.choices[0].index == choice.index]
        assert "".join(part.text for part in own) == choice.text
        values = [value for part in own for value in part.logprobs.token_logprobs]
        assert values == choice.logprobs.token_logprobs
        assert [n for part in own for n in part.logprobs.text_offset] == choice.logprobs.text_offset


def test_prompts_of_many_clients(
    client: openai.OpenAI, scores: Callable[[str], np.ndarray]
) -> None:
    """Texts that run together, with a common beginning; some want no probabilities."""

    def ask(number: int) -> Any:
        wants = {"logprobs": 2} if number % 3 else {}
        prompt = "a common beginning " * 4 + str(number)
        return complete(client, prompt=prompt, echo=True, temperature=0, **wants).choices[0]

    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(ask, range(16))]
    for number, choice in enumerate(found):
        if number % 3:
            check_probabilities(choice, scores(choice.text), 2)
        else:
            assert choice.logprobs is None


def test_biases_and_penalties(client: openai.OpenAI) -> None:
    letter = str(LETTERS.index("z"))
    biased = complete(client, logit_bias={letter: 100})
    assert biased.choices[0].text == "z" * 12
    banned = complete(client, temperature=0, logit_bias={letter: 100}, frequency_penalty=2.0)
    assert banned.choices[0].text == "z" * 12
    plain = complete(client, temperature=0, max_tokens=40).choices[0].text
    varied = (
        complete(
            client,
            temperature=0,
            max_tokens=40,
            presence_penalty=2.0,
            frequency_penalty=2.0,
            extra_body={"repetition_penalty": 1.5},
        )
        .choices[0]
        .text
    )
    assert len({*varied}) > len({*plain})


def test_min_p_and_top_k(client: openai.OpenAI) -> None:
    greedy = complete(client, temperature=0).choices[0].text
    assert complete(client, extra_body={"min_p": 1.0}).choices[0].text == greedy
    assert complete(client, extra_body={"top_k": 1}).choices[0].text == greedy


def test_ends(client: openai.OpenAI) -> None:
    greedy = complete(client, temperature=0).choices[0].text
    (choice,) = complete(client, temperature=0, stop=[greedy[3]]).choices
    assert (choice.text, choice.finish_reason) == (greedy[: greedy.index(greedy[3])], "stop")
    token = LETTERS.index(greedy[3])
    (choice,) = complete(client, temperature=0, extra_body={"stop_token_ids": [token]}).choices
    assert choice.finish_reason == "stop"
    end = {str(len(LETTERS)): 100}
    assert complete(client, logit_bias=end).choices[0].text == ""
    (choice,) = complete(client, logit_bias=end, extra_body={"min_tokens": 4}).choices
    assert (len(choice.text), choice.finish_reason) == (4, "stop")
    (choice,) = complete(client, logit_bias=end, extra_body={"ignore_eos": True}).choices
    assert choice.finish_reason == "length"


def test_a_stream_with_usage(client: openai.OpenAI) -> None:
    how: Any = {"stream": True, "stream_options": {"include_usage": True}, "n": 2, "seed": 3}
    *parts, last = complete(client, **how)
    whole = complete(client, n=2, seed=3)
    for choice in whole.choices:
        own = [p.choices[0] for p in parts if p.choices[0].index == choice.index]
        assert "".join(part.text for part in own) == choice.text
    assert last.usage == whole.usage
    parts = chat(client, stream=True, n=2, max_tokens=3)
    roles = [p.choices[0].index for p in parts if p.choices[0].delta.role == "assistant"]
    assert sorted(roles) == [0, 1]


def test_json_objects(client: openai.OpenAI, grammars: None) -> None:
    how: Any = {"response_format": {"type": "json_object"}, "max_tokens": 300}
    for seed in range(3):
        (choice,) = chat(client, seed=seed, logit_bias={str(LETTERS.index("}")): 4}, **how).choices
        assert choice.finish_reason == "stop"
        assert isinstance(json.loads(choice.message.content), dict)


class Step(pydantic.BaseModel):
    count: int
    name: str = pydantic.Field(max_length=8)


class Steps(pydantic.BaseModel):
    steps: list[Step] = pydantic.Field(max_length=2)
    is_last: bool


def test_schemas(client: openai.OpenAI, grammars: None) -> None:
    """The client makes the schema, and parses the answer."""
    found = client.chat.completions.parse(
        model="m", messages=TALK, response_format=Steps, max_tokens=300, seed=5
    )
    assert isinstance(found.choices[0].message.parsed, Steps)
    with client.chat.completions.stream(
        model="m", messages=TALK, response_format=Steps, max_tokens=300, seed=6
    ) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Steps)


@pytest.mark.parametrize(
    ("wanted", "pattern"),
    [
        ({"regex": "[a-c]{2}/x[0-9]"}, "^[a-c]{2}/x[0-9]$"),
        ({"regex": "a\\\nb\nc\\/d\\\\e"}, "^a\nb\nc/d\\\\e$"),
        ({"choice": ["left", "right"]}, "^(left|right)$"),
        ({"grammar": 'start: "a" /b{3}/'}, "^abbb$"),
        ({"json": {"type": "integer", "minimum": 1, "maximum": 99}}, "^[1-9][0-9]?$"),
    ],
)
def test_structured_outputs(
    client: openai.OpenAI, grammars: None, wanted: Any, pattern: str
) -> None:
    (choice,) = complete(client, extra_body={"structured_outputs": wanted}).choices
    jsonschema.validate(choice.text, {"type": "string", "pattern": pattern})
    assert choice.finish_reason == "stop"


PLACE = {
    "type": "object",
    "properties": {"place": {"type": "string", "maxLength": 9}, "days": {"type": "integer"}},
    "required": ["place", "days"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": PLACE}},
    {"type": "function", "function": {"name": "now", "description": "The time"}},
]
NOW: Any = {"type": "function", "function": {"name": "now"}}


def check_call(call: Any) -> None:
    assert call.type == "function"
    arguments = json.loads(call.function.arguments)
    if call.function.name == "weather":
        jsonschema.validate(arguments, PLACE)
    else:
        assert (call.function.name, arguments) == ("now", {})


def test_required_calls(client: openai.OpenAI, grammars: None) -> None:
    for seed in range(3):
        how: Any = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 400, "seed": seed}
        (choice,) = chat(client, parallel_tool_calls=False, **how).choices
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        (call,) = choice.message.tool_calls
        check_call(call)


def test_a_named_call(client: openai.OpenAI, grammars: None) -> None:
    (choice,) = chat(client, tools=TOOLS, tool_choice=NOW).choices
    assert [call.function.name for call in choice.message.tool_calls] == ["now"]


def test_calls_in_a_stream(client: openai.OpenAI, grammars: None) -> None:
    with client.chat.completions.stream(
        model="m",
        messages=TALK,
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=400,
    ) as stream:
        (choice,) = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"
    for call in choice.message.tool_calls or []:
        check_call(call)
    assert not choice.message.content


def test_a_call_may_be_sent_back(client: openai.OpenAI, grammars: None) -> None:
    said = chat(client, tools=TOOLS, tool_choice=NOW).choices[0].message
    result: Any = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "noon"}
    told = chat(client, tools=TOOLS, messages=[*TALK, said, result], max_tokens=5)
    assert told.usage.prompt_tokens > len(json.dumps(TOOLS))
    assert chat(client, tools=TOOLS, tool_choice="none", max_tokens=1).usage.prompt_tokens < 30


def test_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="biases: expected tokens from 0 to 97") as why:
        complete(client, logit_bias={"96": 1, "97": 1})
    assert why.value.body == {
        "message": "biases: expected tokens from 0 to 97 - 1, got: 97",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
    with pytest.raises(openai.NotFoundError) as missing:
        complete(client, model="n")
    assert missing.value.code == "model_not_found"


def test_hostile_schemas(client: openai.OpenAI, grammars: None) -> None:
    """Each is refused, and the server answers the next request."""
    deep: Any = {"type": "array"}
    for _ in range(150):
        deep = {"type": "array", "items": deep}
    for schema in (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "http://localhost/schema"}}},
        {"type": "string", "pattern": "(a|"},
        {"allOf": [{"enum": [f"{n}{m}" for n in range(900)]} for m in range(30)]},
        deep,
    ):
        wanted: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        with pytest.raises(openai.BadRequestError):
            chat(client, response_format=wanted, max_tokens=20)
        assert chat(client, max_tokens=1).usage.completion_tokens == 1


def test_a_request_id(client: openai.OpenAI) -> None:
    answer = client.completions.with_raw_response.create(
        model="m", prompt="a", max_tokens=1, extra_headers={"X-Request-Id": "mine-7"}
    )
    assert answer.headers["x-request-id"] == "mine-7"
    assert complete(client)._request_id


def test_caches_in_use(server: Server, client: openai.OpenAI) -> None:
    """The gauge counts the tokens of running texts, and is 0 after them."""
    name = 'vllm:kv_cache_usage_perc{model_name="m"} '

    def used() -> float:
        text = httpx.get(f"http://127.0.0.1:{server.http}/metrics").text
        return float(next(line for line in text.splitlines() if line.startswith(name))[len(name) :])

    # A text may end before the first look at the gauge, so texts run until one look sees tokens.
    deadline_s = time.monotonic() + 60
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(complete, client, max_tokens=580)
        while not (found := used()) and time.monotonic() < deadline_s:
            if text.done():
                text = pool.submit(complete, client, max_tokens=580)
    assert 0 < found < 580 / (16 * 600)
    while used() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not used()

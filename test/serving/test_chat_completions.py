"""OpenAI's chat completions API, asked by OpenAI's own client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

import httpx
import openai
import pytest
from fastapi import FastAPI
from openai.types.chat import completion_create_params
from test_completions import Counting

from tensoropt.runtime.support.errors import RankFailedError
from tensoropt.serving.http.body import Bodies
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.openai.messages import Message
from tensoropt.serving.openai.routes import openai_routes
from tensoropt.serving.options import TextLimits
from tensoropt.serving.service import Service
from tensoropt.serving.text_model import TextModel

TALK: Any = [{"role": "system", "content": "ab"}, {"role": "user", "content": "c"}]

TOOLS: Any = [{"type": "function", "function": {"name": "f", "description": "adds"}}]
NONE: Any = {"type": "function", "function": {"name": "g"}}
JSON: Any = {"type": "json_object"}
WRONG: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "wrong"}}}

CHAT: Any = {"model": "m", "messages": TALK}

Ask = Callable[[openai.AsyncOpenAI], Awaitable[Any]]


def asked(ask: Ask, session: Counting | None = None) -> Any:
    """Return what ``ask`` gets of a server."""

    async def answer() -> Any:
        app = FastAPI()
        counting: Any = session or Counting()
        model = TextModel("m", counting, TextLimits(queue=4), Metrics())
        service = Service({}, Metrics(), 20.0, {"m": model})
        for routes in openai_routes(service, Bodies(1 << 16), 20.0):
            app.include_router(routes)
        transport = httpx.ASGITransport(app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://server") as http,
            openai.AsyncOpenAI(
                api_key="none", base_url="http://server/v1", http_client=http, max_retries=0
            ) as client,
        ):
            return await ask(client)

    return asyncio.run(answer())


def test_an_answer() -> None:
    session = Counting()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "bc"}]
    found = asked(
        lambda client: client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": parts}],  # type: ignore[list-item, misc]
            max_completion_tokens=3,
            temperature=0,
            seed=4,
        ),
        session,
    )
    assert (found.object, found.model) == ("chat.completion", "m")
    (choice,) = found.choices
    assert (choice.message.role, choice.message.content) == ("assistant", " 3 4 5")
    assert choice.finish_reason == "length"
    assert found.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    (how,) = session.asked
    assert (how["max_tokens"], how["temperature"], how["seed"]) == (3, 0, 4)


def test_a_stream() -> None:
    async def chunks(client: openai.AsyncOpenAI) -> list[Any]:
        stream = await client.chat.completions.create(model="m", messages=TALK, stream=True)
        return [chunk async for chunk in stream]

    found = asked(chunks)
    assert {chunk.object for chunk in found} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in found}) == 1
    choices = [chunk.choices[0] for chunk in found]
    assert [choice.delta.role for choice in choices] == ["assistant", *[None] * 4]
    assert "".join(choice.delta.content for choice in choices) == " 3 4 5 6 7"  # all the room
    assert [choice.finish_reason for choice in choices] == [*[None] * 4, "length"]


@pytest.mark.parametrize(
    ("fields", "status", "why"),
    [
        ({"model": "n"}, 404, "model 'n': not a text model here"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "user"}]}, 400, "messages.0: .* content: expected a text"),
        ({"messages": [{"role": "tool", "content": "a"}]}, 400, "chat template: expected a user"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages.0"),
        ({"n": 65}, 400, "n: expected at most 64 texts"),
        ({"top_logprobs": 1}, 400, "top_logprobs: expected logprobs to be true"),
        ({"tools": [{"type": "function"}]}, 400, "tools.0.function: Field required"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, 400, "tools.0.function.n"),
        ({"tools": TOOLS}, 400, "tool_choice: expected 'required', 'none' or a function"),
        ({"tool_choice": "required"}, 400, "tool_choice: expected tools"),
        ({"tools": TOOLS, "tool_choice": NONE}, 400, "tool_choice: expected a function of tools"),
        ({"tools": TOOLS, "response_format": JSON}, 400, "tools: not with a format of the answer"),
        ({"response_format": {"type": "xml"}}, 400, "response_format: "),
        ({"response_format": {"type": "json_schema"}}, 400, "json_schema: Field required"),
        ({"response_format": WRONG}, 400, "grammar: wrong"),
        ({"extra_body": {"structured_outputs": {}}}, 400, "expected one of json, regex"),
        ({"store": True}, 400, "store: Input should be False"),
        ({"stream_options": {"include_usage": True}}, 400, "expected stream to be true"),
        ({"messages": [{"role": "assistant", "content": None}]}, 400, "content: expected a text"),
        ({"messages": [{**TALK[1], "refusal": "no"}]}, 400, "refusal: Extra inputs are not"),
        ({"extra_body": {"other": 1}}, 400, "other: Extra inputs are not permitted"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"extra_body": {"min_tokens": 6}}, 400, "min_tokens: expected at most max_tokens, 5, got"),
        ({"extra_body": {"add_generation_prompt": False}}, 400, "add_generation_prompt: Input"),
        ({"extra_body": {"continue_final_message": True}}, 400, "continue_final_message: Input"),
        ({"extra_body": {"chat_template": "a"}}, 400, "chat_template: Extra inputs are not"),
        ({"reasoning_effort": "huge"}, 400, "reasoning_effort: Input should be 'none', 'minimal'"),
        (
            {"tools": TOOLS, "tool_choice": "required", "extra_body": {"min_tokens": 1}},
            400,
            "min_tokens: not with tools",
        ),
    ],
)
def test_refused(fields: dict[str, Any], status: int, why: str) -> None:
    with pytest.raises(openai.APIStatusError, match=why) as caught:
        asked(lambda c: c.chat.completions.create(**{"model": "m", "messages": TALK, **fields}))
    assert caught.value.status_code == status
    assert caught.value.type == "invalid_request_error"


NOTHING: dict[str, Any] = {
    "audio": None,
    "frequency_penalty": 0.0,
    "function_call": "none",
    "functions": [],
    "logit_bias": {},
    "logprobs": False,
    "metadata": {"title": "a"},
    "modalities": ["text"],
    "n": 1,
    "parallel_tool_calls": True,
    "prediction": None,
    "presence_penalty": 0,
    "prompt_cache_key": "a",
    "reasoning_effort": "none",
    "response_format": {"type": "text"},
    "safety_identifier": "a",
    "service_tier": "auto",
    "stop": [],
    "store": False,
    "stream_options": None,
    "tool_choice": "none",
    "tools": [],
    "top_logprobs": 0,
    "user": "a",
    "verbosity": "medium",
    "web_search_options": None,
}


@pytest.mark.parametrize("name", NOTHING)
def test_values_that_do_nothing(name: str) -> None:
    more = {"model": "m", "messages": TALK, name: NOTHING[name]}
    found = asked(lambda client: client.chat.completions.create(**more))
    assert found.choices[0].message.content == " 3 4 5 6 7"


def test_variables_of_the_chat_template() -> None:
    session = Counting()
    session.template_variables = {"enable_thinking"}
    asks: list[dict[str, Any]] = [
        {},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"reasoning_effort": "none"},
        {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
    ]
    for ask in asks:
        asked(lambda c, a=ask: c.chat.completions.create(**CHAT, extra_body=a), session)
    values = [{}, {"enable_thinking": True}, {"enable_thinking": False}, {"enable_thinking": True}]
    assert session.variables == values
    with pytest.raises(openai.BadRequestError, match="reasoning_effort: expected none, as"):
        asked(lambda c: c.chat.completions.create(**CHAT, reasoning_effort="low"), session)
    session.template_variables = {"reasoning_effort"}
    for effort in ("none", "low", "xhigh"):
        asked(lambda c, e=effort: c.chat.completions.create(**CHAT, reasoning_effort=e), session)
        assert session.variables[-1] == {"reasoning_effort": effort}


def test_reasoning_of_earlier_answers() -> None:
    """It goes to the template by both names, which vLLM uses."""
    for name in ("reasoning_content", "reasoning"):
        message = Message.model_validate({"role": "assistant", "content": "a", name: "so"})
        plain = {"role": "assistant", "content": "a", "reasoning_content": "so", "reasoning": "so"}
        assert message.plain() == plain
    talk: Any = [TALK[1], {"role": "assistant", "content": "a", "reasoning_content": None}, TALK[1]]
    asked(lambda client: client.chat.completions.create(model="m", messages=talk))


def test_every_field_may_be_null() -> None:
    names = get_type_hints(completion_create_params.CompletionCreateParamsBase)
    nulls = dict.fromkeys(names.keys() - {"model", "messages", "user"})
    found = asked(
        lambda client: client.chat.completions.create(model="m", messages=TALK, extra_body=nulls)
    )
    assert found.choices[0].message.content == " 3 4 5 6 7"


@pytest.mark.parametrize("exclude_none", [False, True])
def test_an_answer_may_be_sent_back(exclude_none: bool) -> None:
    async def talk(client: openai.AsyncOpenAI) -> Any:
        first = await client.chat.completions.create(model="m", messages=TALK)
        said = first.choices[0].message.model_dump(exclude_none=exclude_none)
        more: Any = [*TALK, {**said, "annotations": [], "tool_calls": []}, TALK[1]]
        return await client.chat.completions.create(model="m", messages=more)

    assert asked(talk).usage.prompt_tokens == len("abc 3 4 5 6 7c")


def test_a_stream_with_usage() -> None:
    async def chunks(client: openai.AsyncOpenAI) -> list[Any]:
        stream = await client.chat.completions.create(
            model="m", messages=TALK, stream=True, stream_options={"include_usage": True}
        )
        return [chunk async for chunk in stream]

    *parts, last = asked(chunks)
    assert [part.usage for part in parts] == [None] * 5
    assert all(part.model_dump(exclude_unset=True).keys() >= {"usage"} for part in parts)
    assert last.choices == []
    assert last.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_a_seed_may_be_negative() -> None:
    session = Counting()
    asked(lambda c: c.chat.completions.create(model="m", messages=TALK, seed=-1), session)
    assert session.asked[0]["seed"] == (1 << 64) - 1


def test_models() -> None:
    async def listed(client: openai.AsyncOpenAI) -> tuple[list[Any], Any]:
        return (await client.models.list()).data, await client.models.retrieve("m")

    found, one = asked(listed)
    assert found == [one]
    assert (one.id, one.object, one.owned_by) == ("m", "model", "tensoropt")
    assert abs(one.created - time.time()) < 600
    with pytest.raises(openai.NotFoundError, match="model 'n': not a model of texts") as caught:
        asked(lambda client: client.models.retrieve("n"))
    assert (caught.value.type, caught.value.code) == ("invalid_request_error", "model_not_found")


def test_ranks_that_end() -> None:
    session = Counting()
    session.error = RankFailedError("rank 1 of 2: was killed")  # type: ignore[assignment]
    with pytest.raises(openai.InternalServerError, match="was killed"):
        asked(lambda c: c.chat.completions.create(model="m", messages=TALK), session)

"""OpenAI's chat completions API, asked by OpenAI's own client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI
from test_completions import Counting

from tensoropt.runtime.support.errors import RankFailedError
from tensoropt.serving.http.chats import chat_routes
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.text_model import TextLimits, TextModel

TALK: Any = [{"role": "system", "content": "ab"}, {"role": "user", "content": "c"}]

Ask = Callable[[openai.AsyncOpenAI], Awaitable[Any]]


def asked(ask: Ask, session: Counting | None = None) -> Any:
    """Return what ``ask`` gets of a server."""

    async def answer() -> Any:
        app = FastAPI()
        counting: Any = session or Counting()
        model = TextModel("m", counting, TextLimits(queue=4), Metrics())
        app.include_router(chat_routes({"m": model}, 1 << 16, 20.0))
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
        ({"model": "n"}, 404, "model 'n': continues no texts here"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "user"}]}, 400, "messages.0.content: Field required"),
        ({"messages": [{"role": "tool", "content": "a"}]}, 400, "chat template: expected a user"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages.0"),
        ({"n": 2}, 400, "n: Input should be 1"),
        ({"tools": []}, 400, "tools: Extra inputs are not permitted"),
        ({"max_tokens": 0}, 400, "max_tokens"),
    ],
)
def test_refused(fields: dict[str, Any], status: int, why: str) -> None:
    with pytest.raises(openai.APIStatusError, match=why) as caught:
        asked(lambda c: c.chat.completions.create(**{"model": "m", "messages": TALK, **fields}))
    assert caught.value.status_code == status
    assert caught.value.type == "invalid_request_error"


def test_ranks_that_end() -> None:
    session = Counting()
    session.error = RankFailedError("rank 1 of 2: was killed")  # type: ignore[assignment]
    with pytest.raises(openai.InternalServerError, match="was killed"):
        asked(lambda c: c.chat.completions.create(model="m", messages=TALK), session)

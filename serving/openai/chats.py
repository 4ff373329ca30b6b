"""OpenAI's chat completions API: `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import AfterValidator, Field

from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.body import Bodies, Body
from tensoropt.serving.openai.answers import Answer
from tensoropt.serving.openai.asked import Asked, Given
from tensoropt.serving.openai.responding import find_model, respond
from tensoropt.serving.text_model import TextModel

__all__ = ["chat_routes"]


_MOST_MESSAGES = 8192
"""Limit on the messages of a chat: each takes time on the event loop."""

_Nothing = Annotated[list[Any], Field(default_factory=list, max_length=0)]


class Part(Given):
    """A part of a message, which must be text."""

    type: Literal["text"]
    text: str


def _joined(content: str | list[Part]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


class Message(Given):
    """A message of a chat; the model's template defines the roles.

    An assistant's message may be sent back with its other fields, if they are empty.
    """

    role: str
    content: Annotated[str | list[Part], AfterValidator(_joined)]
    name: str | None = None
    tool_calls: _Nothing
    annotations: _Nothing

    def plain(self) -> dict[str, str]:
        """Return the message in the form that templates take."""
        named = {} if self.name is None else {"name": self.name}
        return {"role": self.role, "content": str(self.content), **named}


class TextFormat(Given):
    """The format of an answer, which must be plain text."""

    type: Literal["text"]


class AskedChat(Asked):
    """A request for the answer in a chat.

    A field that is not implemented takes only the value that changes nothing. Labels of a request,
    such as ``metadata``, take any value.
    """

    messages: list[Message] = Field(min_length=1, max_length=_MOST_MESSAGES)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: Literal[False] = False
    top_logprobs: Literal[0] = 0
    response_format: TextFormat | None = None
    modalities: list[Literal["text"]] | None = None
    tools: _Nothing
    tool_choice: Literal["none", "auto"] = "none"
    parallel_tool_calls: bool = False
    functions: _Nothing
    function_call: Literal["none", "auto"] = "none"
    store: Literal[False] = False
    metadata: dict[str, str] | None = None
    reasoning_effort: Literal["none"] = "none"
    verbosity: Literal["medium"] = "medium"
    service_tier: Literal["auto", "default"] = "auto"
    safety_identifier: str = ""
    prompt_cache_key: str = ""
    prompt_cache_retention: str = ""


class ChatAnswer(Answer):
    """The answer in a chat, in the protocol's form."""

    prefix, whole_kind, part_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(self, number: int, text: str, finish: str | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": number, "message": message, "logprobs": None, "finish_reason": finish}

    def part(self, piece: Piece, *, is_first: bool) -> dict[str, Any]:
        delta = {**({"role": "assistant"} if is_first else {}), "content": piece.text}
        finish = piece.finish
        return {"index": piece.number, "delta": delta, "logprobs": None, "finish_reason": finish}


def chat_routes(models: Mapping[str, TextModel], bodies: Bodies, timeout_s: float) -> APIRouter:
    """Return the route; limits are as for `completion_routes`."""
    router = APIRouter(prefix="/v1/chat")

    async def read(body: Body) -> tuple[Answer, bool]:
        asked = await body.parse(AskedChat.parse)
        model = find_model(models, asked.model)
        with model.refusals():
            tokens = await model.tokens_of_chat([message.plain() for message in asked.messages])
        options = asked.options(
            asked.max_completion_tokens or asked.max_tokens or model.room(tokens)
        )
        return ChatAnswer(model, [tokens], options, has_usage=asked.has_usage), asked.stream

    @router.post("/completions")
    async def complete(request: Request) -> Response:
        return await respond(request, bodies, timeout_s, read)

    return router

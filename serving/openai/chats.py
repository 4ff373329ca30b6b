"""OpenAI's chat completions API: `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Request, Response
from pydantic import AfterValidator, Field, model_validator

from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.body import Bodies, Body
from tensoropt.serving.openai.answers import Answer, Choice
from tensoropt.serving.openai.asked import MOST_LOGPROBS, Asked, Given
from tensoropt.serving.openai.logprobs import TextOf, chat_logprobs
from tensoropt.serving.openai.responding import check_texts, find_model, respond
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
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MOST_LOGPROBS)
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

    @model_validator(mode="after")
    def has_logprobs(self) -> Self:
        """Refuse the number of likeliest tokens without probabilities, as OpenAI does."""
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs: expected logprobs to be true")
        return self

    def options(self, max_tokens: int) -> dict[str, Any]:
        """Return the keyword arguments of `TextSession.stream`."""
        logprobs = self.top_logprobs if self.logprobs else None
        return {**super().options(max_tokens), "logprobs": logprobs}


class ChatChoice(Choice):
    """An answer in a chat."""

    def __init__(self, text_of: TextOf | None) -> None:
        self._text_of = text_of
        self._is_begun = False

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        text = "".join(piece.text for piece in pieces)
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"message": message, **self._end(pieces)}

    def parts(self, piece: Piece) -> Iterator[dict[str, Any]]:
        role = {} if self._is_begun else {"role": "assistant"}
        self._is_begun = True
        yield {"delta": {**role, "content": piece.text}, **self._end([piece])}

    def _end(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        logprobs = self._text_of and chat_logprobs(pieces, self._text_of)
        return {"logprobs": logprobs, "finish_reason": pieces[-1].finish}


class ChatAnswer(Answer):
    """The answers in a chat, in the protocol's form."""

    prefix, whole_kind, part_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, model: TextModel, tokens: list[int], asked: AskedChat) -> None:
        limit = asked.max_completion_tokens or asked.max_tokens or model.room(tokens)
        options = asked.options(limit)
        super().__init__(model, [tokens], options, count=asked.n, has_usage=asked.has_usage)
        self._text_of = model.text_of_token if asked.logprobs else None

    def choice(self, prompt: int) -> ChatChoice:
        return ChatChoice(self._text_of)


def chat_routes(models: Mapping[str, TextModel], bodies: Bodies, timeout_s: float) -> APIRouter:
    """Return the route; limits are as for `completion_routes`."""
    router = APIRouter(prefix="/v1/chat")

    async def read(body: Body) -> tuple[Answer, bool]:
        asked = await body.parse(AskedChat.parse)
        model = find_model(models, asked.model)
        with model.refusals():
            check_texts(model, 1, asked.n)
            tokens = await model.tokens_of_chat([message.plain() for message in asked.messages])
        return ChatAnswer(model, tokens, asked), asked.stream

    @router.post("/completions")
    async def complete(request: Request) -> Response:
        return await respond(request, bodies, timeout_s, read)

    return router

"""OpenAI's chat completions API: `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.answers import Answer, Asked, answered, named
from tensoropt.serving.text_model import TextModel

__all__ = ["chat_routes"]


class Part(BaseModel):
    """A part of a message: text, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]
    text: str


class Said(BaseModel):
    """A message; which roles there are, the model's template says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: str
    content: str | list[Part]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        """Return it as templates take it."""
        parts = [self.content] if isinstance(self.content, str) else [p.text for p in self.content]
        named = {} if self.name is None else {"name": self.name}
        return {"role": self.role, "content": "".join(parts), **named}


class AskedChat(Asked):
    """A request for the answer in a chat."""

    messages: list[Said] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: Literal[False] | None = None


class ChatAnswer(Answer):
    """The answer in a chat as the protocol has it."""

    prefix, whole_kind, part_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(self, number: int, text: str, finish: str | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": number, "message": message, "logprobs": None, "finish_reason": finish}

    def part(self, piece: Piece, *, is_first: bool) -> dict[str, Any]:
        delta = {**({"role": "assistant"} if is_first else {}), "content": piece.text}
        finish = piece.finish
        return {"index": piece.number, "delta": delta, "logprobs": None, "finish_reason": finish}


def chat_routes(models: Mapping[str, TextModel], max_body: int, timeout_s: float) -> APIRouter:
    """Return the route; limits are as for `completion_routes`."""
    router = APIRouter(prefix="/v1/chat")

    async def read(body: bytearray) -> tuple[Answer, bool]:
        asked = AskedChat.of(body)
        model = named(models, asked.model)
        tokens = await model.tokens_of_chat([said.plain() for said in asked.messages])
        most = asked.max_completion_tokens or asked.max_tokens or model.room(tokens)
        return ChatAnswer(model, [tokens], asked.how(most)), asked.stream

    @router.post("/completions")
    async def complete(request: Request) -> Response:
        return await answered(request, max_body, timeout_s, read)

    return router

"""OpenAI's completions API: `/v1/completions` and `/v1/models`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.answers import Answer, Asked, answered, named, refused
from tensoropt.serving.protocol.refusals import RefusedError
from tensoropt.serving.text_model import TextModel

__all__ = ["completion_routes"]

_Tokens = list[int]


class AskedCompletion(Asked):
    """A request for a completion."""

    prompt: str | _Tokens | list[str] | list[_Tokens]
    max_tokens: int = Field(16, ge=1)
    best_of: Literal[1] = 1
    echo: Literal[False] = False
    suffix: Literal[""] = ""

    def prompts(self) -> list[str | _Tokens]:
        """Return the prompts as a list, also a single one."""
        one = isinstance(self.prompt, str) or (
            bool(self.prompt) and isinstance(self.prompt[0], int)
        )
        return [self.prompt] if one else list(self.prompt)  # type: ignore[list-item, arg-type]


class Completion(Answer):
    """A completion as the protocol has it."""

    prefix, whole_kind, part_kind = "cmpl", "text_completion", "text_completion"

    def choice(self, number: int, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": number, "text": text, "logprobs": None, "finish_reason": finish}

    def part(self, piece: Piece, *, is_first: bool) -> dict[str, Any]:
        return self.choice(piece.number, piece.text, piece.finish)


def completion_routes(
    models: Mapping[str, TextModel], max_body: int, timeout_s: float
) -> APIRouter:
    """Return the routes; a text, or the first piece of it, must be there within ``timeout_s``."""
    router = APIRouter(prefix="/v1")

    created = int(time.time())

    def described(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": created, "owned_by": "tensoropt"}

    @router.get("/models")
    async def listed() -> Response:
        return JSONResponse({"object": "list", "data": [described(name) for name in models]})

    @router.get("/models/{name}")
    async def one(name: str) -> Response:
        try:
            return JSONResponse(described(named(models, name).name))
        except RefusedError as error:
            return refused(error)

    async def read(body: bytearray) -> tuple[Answer, bool]:
        asked = AskedCompletion.of(body)
        model = named(models, asked.model)
        prompts = asked.prompts()
        model.check_prompts(len(prompts))
        tokens = [model.tokens_of(prompt) for prompt in prompts]
        return Completion(
            model, tokens, asked.how(asked.max_tokens), has_usage=asked.has_usage
        ), asked.stream

    @router.post("/completions")
    async def complete(request: Request) -> Response:
        return await answered(request, max_body, timeout_s, read)

    return router

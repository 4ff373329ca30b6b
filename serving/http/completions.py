"""OpenAI's completions API: `/v1/completions` and `/v1/models`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.answers import Answer, Asked, answered, named
from tensoropt.serving.text_model import TextModel

__all__ = ["completion_routes"]

_Tokens = list[int]


class AskedCompletion(Asked):
    """A request for a completion."""

    prompt: str | _Tokens | list[str] | list[_Tokens]
    max_tokens: int = Field(16, ge=1)
    best_of: Literal[1] = 1
    echo: Literal[False] = False
    logprobs: None = None

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

    @router.get("/models")
    async def listed() -> Response:
        entries = [{"id": name, "object": "model", "owned_by": "tensoropt"} for name in models]
        return JSONResponse({"object": "list", "data": entries})

    async def read(body: bytearray) -> tuple[Answer, bool]:
        asked = AskedCompletion.of(body)
        model = named(models, asked.model)
        prompts = asked.prompts()
        model.check_prompts(len(prompts))
        tokens = [model.tokens_of(prompt) for prompt in prompts]
        return Completion(model, tokens, asked.how(asked.max_tokens)), asked.stream

    @router.post("/completions")
    async def complete(request: Request) -> Response:
        return await answered(request, max_body, timeout_s, read)

    return router

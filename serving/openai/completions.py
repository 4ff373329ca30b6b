"""OpenAI's completions API: `/v1/completions` and `/v1/models`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal, Self

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.body import Bodies, Body
from tensoropt.serving.openai.answers import Answer
from tensoropt.serving.openai.asked import Asked
from tensoropt.serving.openai.errors import error_response
from tensoropt.serving.openai.responding import find_model, respond
from tensoropt.serving.protocol.refusals import Reason, RefusedError
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

    @classmethod
    def parse_limited(cls, body: bytearray, most_prompts: int, most_tokens: int | None) -> Self:
        """Parse a body of at most ``most_prompts`` prompts; raises `RefusedError`.

        A prompt longer than the context of every model is refused early: passing it on is slow.
        """
        asked = cls.parse(body)
        prompts = asked.prompts()
        if len(prompts) > most_prompts:
            raise _refused(f"at most {most_prompts} (--max-prompts)", len(prompts))
        longest = max((len(text) for text in prompts if not isinstance(text, str)), default=0)
        if most_tokens is not None and longest > most_tokens:
            raise _refused(f"at most {most_tokens} tokens", longest)
        return asked

    def prompts(self) -> list[str | _Tokens]:
        """Return the prompts as a list, even a single prompt."""
        is_single = isinstance(self.prompt, str) or (
            bool(self.prompt) and isinstance(self.prompt[0], int)
        )
        return [self.prompt] if is_single else list(self.prompt)  # type: ignore[list-item, arg-type]


def _refused(expected: str, got: int) -> RefusedError:
    return RefusedError(Reason.INVALID, f"prompt: expected {expected}, got: {got}")


class Completion(Answer):
    """A completion in the protocol's form."""

    prefix, whole_kind, part_kind = "cmpl", "text_completion", "text_completion"

    def choice(self, number: int, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": number, "text": text, "logprobs": None, "finish_reason": finish}

    def part(self, piece: Piece, *, is_first: bool) -> dict[str, Any]:
        return self.choice(piece.number, piece.text, piece.finish)


def completion_routes(
    models: Mapping[str, TextModel], bodies: Bodies, timeout_s: float
) -> APIRouter:
    """Return the routes; a text, or its first streamed piece, is due within ``timeout_s``."""
    router = APIRouter(prefix="/v1")
    created = int(time.time())

    def describe(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": created, "owned_by": "tensoropt"}

    @router.get("/models")
    async def list_models() -> Response:
        return JSONResponse({"object": "list", "data": [describe(name) for name in models]})

    @router.get("/models/{name}")
    async def show_model(name: str) -> Response:
        try:
            return JSONResponse(describe(find_model(models, name).name))
        except RefusedError as error:
            return error_response(error)

    async def read(body: Body) -> tuple[Answer, bool]:
        most = max(model.limits.max_prompts for model in models.values())
        contexts = [model.context for model in models.values() if model.context is not None]
        longest = max(contexts) if len(contexts) == len(models) else None
        asked = await body.parse(AskedCompletion.parse_limited, most, longest)
        model = find_model(models, asked.model)
        with model.refusals():
            tokens = [await model.tokens_of(prompt) for prompt in asked.prompts()]
        options = asked.options(asked.max_tokens)
        return Completion(model, tokens, options, has_usage=asked.has_usage), asked.stream

    @router.post("/completions")
    async def complete(request: Request) -> Response:
        return await respond(request, bodies, timeout_s, read)

    return router

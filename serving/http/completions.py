"""OpenAI's completions API: `/v1/completions` and `/v1/models`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal, Self

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.answers import Answer, Asked, answered, named, refused
from tensoropt.serving.http.body import Bodies, Body
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
    def within(cls, body: bytearray, most_prompts: int, most_tokens: int | None) -> Self:
        """Return what a body asks for, of few enough prompts; raises `RefusedError`.

        A prompt of more tokens than any model takes is refused, too: it takes long to be passed on.
        """
        asked = cls.of(body)
        prompts = asked.prompts()
        if len(prompts) > most_prompts:
            raise _refused(f"at most {most_prompts} (--max-prompts)", len(prompts))
        longest = max((len(one) for one in prompts if not isinstance(one, str)), default=0)
        if most_tokens is not None and longest > most_tokens:
            raise _refused(f"at most {most_tokens} tokens", longest)
        return asked

    def prompts(self) -> list[str | _Tokens]:
        """Return the prompts as a list, also a single one."""
        one = isinstance(self.prompt, str) or (
            bool(self.prompt) and isinstance(self.prompt[0], int)
        )
        return [self.prompt] if one else list(self.prompt)  # type: ignore[list-item, arg-type]


def _refused(expected: str, got: int) -> RefusedError:
    return RefusedError(Reason.INVALID, f"prompt: expected {expected}, got: {got}")


class Completion(Answer):
    """A completion as the protocol has it."""

    prefix, whole_kind, part_kind = "cmpl", "text_completion", "text_completion"

    def choice(self, number: int, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": number, "text": text, "logprobs": None, "finish_reason": finish}

    def part(self, piece: Piece, *, is_first: bool) -> dict[str, Any]:
        return self.choice(piece.number, piece.text, piece.finish)


def completion_routes(
    models: Mapping[str, TextModel], bodies: Bodies, timeout_s: float
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

    async def read(body: Body) -> tuple[Answer, bool]:
        most = max(model.limits.max_prompts for model in models.values())
        contexts = [model.context for model in models.values() if model.context is not None]
        longest = max(contexts) if len(contexts) == len(models) else None
        asked = await body.parsed(AskedCompletion.within, most, longest)
        model = named(models, asked.model)
        with model.refusals():
            tokens = [await model.tokens_of(prompt) for prompt in asked.prompts()]
        return Completion(
            model, tokens, asked.how(asked.max_tokens), has_usage=asked.has_usage
        ), asked.stream

    @router.post("/completions")
    async def complete(request: Request) -> Response:
        return await answered(request, bodies, timeout_s, read)

    return router

"""OpenAI's completions API: `/v1/completions` and `/v1/models`."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tensoropt.runtime.support.errors import did_you_mean
from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.body import body_of
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.text_model import TextModel

__all__ = ["completion_routes"]

_Tokens = list[int]
_KINDS = {Reason.INVALID: "invalid_request_error", Reason.UNKNOWN: "invalid_request_error"}


class Asked(BaseModel):
    """A request for a completion. What is not done here is refused, whatever its default asks."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    prompt: str | _Tokens | list[str] | list[_Tokens]
    max_tokens: int = Field(16, ge=1)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=0)
    stop: str | list[str] | None = None
    stream: bool = False
    user: str | None = None
    n: Literal[1] = 1
    best_of: Literal[1] = 1
    echo: Literal[False] = False
    logprobs: None = None
    presence_penalty: Literal[0] = 0
    frequency_penalty: Literal[0] = 0

    def prompts(self) -> list[str | _Tokens]:
        """Return the prompts as a list, also a single one."""
        one = isinstance(self.prompt, str) or (
            bool(self.prompt) and isinstance(self.prompt[0], int)
        )
        return [self.prompt] if one else list(self.prompt)  # type: ignore[list-item, arg-type]

    def how(self) -> dict[str, Any]:
        """Return how to continue, as `TextSession.stream` takes it."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        seed = uuid.uuid4().int >> 64 if self.seed is None else self.seed
        asked = self.model_dump(include={"max_tokens", "temperature", "top_p", "top_k"})
        return {**asked, "stop": stops, "seed": seed}


def completion_routes(
    models: Mapping[str, TextModel], max_body: int, timeout_s: float
) -> APIRouter:
    """Return the routes; a text, or the first piece of it, must be there within ``timeout_s``."""
    router = APIRouter(prefix="/v1")

    @router.get("/models")
    async def listed() -> Response:
        entries = [{"id": name, "object": "model", "owned_by": "tensoropt"} for name in models]
        return JSONResponse({"object": "list", "data": entries})

    @router.post("/completions")
    async def complete(request: Request) -> Response:
        try:
            asked = _read(await body_of(request, max_body))
            completion = _Completion(_named(models, asked.model), asked)
            async with asyncio.timeout(timeout_s):
                return await completion.streamed() if asked.stream else await completion.whole()
        except RefusedError as error:
            return JSONResponse(_error(error), error.reason.status)
        except TimeoutError:
            late = RefusedError(Reason.LATE, f"no answer within {timeout_s:g} s (--timeout)")
            return JSONResponse(_error(late), late.reason.status)

    return router


def _read(body: bytearray) -> Asked:
    try:
        return Asked.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise RefusedError(Reason.INVALID, f"{where}: {first['msg']}") from None


def _named(models: Mapping[str, TextModel], name: str) -> TextModel:
    if name not in models:
        near = did_you_mean(name, models)
        raise RefusedError(Reason.UNKNOWN, f"model '{name:.80}': continues no texts here{near}")
    return models[name]


def _error(error: RefusedError) -> dict[str, Any]:
    kind = _KINDS.get(error.reason, "server_error")
    return {"error": {"message": str(error), "type": kind, "param": None, "code": None}}


class _Completion:
    """One request, and its answer in one piece or as it is made."""

    def __init__(self, model: TextModel, asked: Asked) -> None:
        self._model, self._asked = model, asked
        self._prompts = [model.tokens_of(prompt) for prompt in asked.prompts()]
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model.name,
        }

    def _pieces(self) -> AsyncGenerator[Piece, None]:
        return self._model.pieces(self._prompts, **self._asked.how())

    async def whole(self) -> Response:
        """Return the answer when it is complete; raises `RefusedError`."""
        choices = [_choice(number, "", None) for number in range(len(self._prompts))]
        count = 0
        async with aclosing(self._pieces()) as pieces:
            async for piece in pieces:
                choices[piece.number]["text"] += piece.text
                choices[piece.number]["finish_reason"] = piece.finish
                count += 1
        return JSONResponse({**self._head, "choices": choices, "usage": self._usage(count)})

    def _usage(self, count: int) -> dict[str, int]:
        given = sum(map(len, self._prompts))
        counts = {"prompt_tokens": given, "completion_tokens": count}
        return {**counts, "total_tokens": given + count}

    async def streamed(self) -> Response:
        """Return the answer as server-sent events, once its first piece is there."""
        pieces = self._pieces()
        first = await anext(pieces)
        return StreamingResponse(self._events(first, pieces), media_type="text/event-stream")

    async def _events(
        self, first: Piece, pieces: AsyncGenerator[Piece, None]
    ) -> AsyncIterator[str]:
        async with aclosing(pieces):
            yield self._event(first)
            try:
                async for piece in pieces:
                    yield self._event(piece)
            except RefusedError as error:
                yield _line(_error(error))
                return
        yield "data: [DONE]\n\n"

    def _event(self, piece: Piece) -> str:
        return _line({**self._head, "choices": [_choice(piece.number, piece.text, piece.finish)]})


def _line(facts: dict[str, Any]) -> str:
    return f"data: {json.dumps(facts, ensure_ascii=False)}\n\n"


def _choice(number: int, text: str, finish: str | None) -> dict[str, Any]:
    return {"index": number, "text": text, "logprobs": None, "finish_reason": finish}

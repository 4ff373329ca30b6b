"""The common part of OpenAI's completion APIs: requests, answers, streaming and errors."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Literal, Self

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tensoropt.runtime.support.errors import did_you_mean
from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.body import Bodies, Body
from tensoropt.serving.http.disconnect import unless_disconnected
from tensoropt.serving.log import note
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.text_model import TextModel

__all__ = ["Answer", "Asked", "Given", "error_response", "find_model", "respond"]

_KINDS = {Reason.INVALID: "invalid_request_error", Reason.UNKNOWN: "invalid_request_error"}


class Given(BaseModel):
    """A JSON object of a request: null means absent, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def without_nulls(cls, given: Any) -> Any:
        """Return the fields that are not null."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None}


class StreamOptions(Given):
    """Options of a streamed answer."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class Asked(Given):
    """A request for text, with sampling options. Values that are not implemented are refused."""

    model: str
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 64)
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    n: Literal[1] = 1
    presence_penalty: float = Field(0.0, ge=0, le=0)
    frequency_penalty: float = Field(0.0, ge=0, le=0)
    logit_bias: dict[str, float] = Field({}, max_length=0)

    @model_validator(mode="after")
    def has_options_of_streams(self) -> Self:
        """Refuse stream options without a stream, as OpenAI does."""
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options: expected stream to be true")
        return self

    @property
    def has_usage(self) -> bool:
        """True if a stream ends with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage

    @classmethod
    def parse(cls, body: bytearray) -> Self:
        """Parse a body; raises `RefusedError`."""
        try:
            return cls.model_validate_json(bytes(body))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "body"
            raise RefusedError(Reason.INVALID, f"{where}: {first['msg']}") from None

    def options(self, max_tokens: int) -> dict[str, Any]:
        """Return the keyword arguments of `TextSession.stream`."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        seed = uuid.uuid4().int >> 64 if self.seed is None else self.seed % (1 << 64)
        sampling = self.model_dump(include={"temperature", "top_p", "top_k"})
        return {**sampling, "max_tokens": max_tokens, "stop": stops, "seed": seed}


class Answer(ABC):
    """The continuation of ``prompts``, whole or streamed.

    ``options`` are the keyword arguments of `TextSession.stream`.
    """

    prefix: ClassVar[str]
    whole_kind: ClassVar[str]
    part_kind: ClassVar[str]

    def __init__(
        self,
        model: TextModel,
        prompts: list[list[int]],
        options: Mapping[str, Any],
        *,
        has_usage: bool = False,
    ) -> None:
        self._model, self._prompts, self._options = model, prompts, options
        self._has_usage = has_usage
        self._facts = {"created": int(time.time()), "model": model.name}
        self._id = f"{self.prefix}-{uuid.uuid4().hex}"

    @abstractmethod
    def choice(self, number: int, text: str, finish: str | None) -> dict[str, Any]:
        """Return the whole text of one prompt in the protocol's form."""

    @abstractmethod
    def part(self, piece: Piece, *, is_first: bool) -> dict[str, Any]:
        """Return a piece in the protocol's form."""

    async def whole(self) -> Response:
        """Return the answer when it is complete; raises `RefusedError`."""
        texts, finish = [""] * len(self._prompts), [""] * len(self._prompts)
        count = 0
        async with aclosing(self._pieces()) as pieces:
            async for piece in pieces:
                texts[piece.number] += piece.text
                finish[piece.number] = piece.finish or ""
                count += 1
        choices = [self.choice(n, text, finish[n]) for n, text in enumerate(texts)]
        head = self._head(self.whole_kind)
        return JSONResponse({**head, "choices": choices, "usage": self._usage(count)})

    async def streamed(self) -> Response:
        """Return the answer as server-sent events, once its first piece is ready."""
        pieces = self._pieces()
        first = await anext(pieces)
        return StreamingResponse(self._events(first, pieces), media_type="text/event-stream")

    def _pieces(self) -> AsyncGenerator[Piece, None]:
        return self._model.pieces(self._prompts, **self._options)

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, **self._facts}

    def _usage(self, count: int) -> dict[str, int]:
        given = sum(map(len, self._prompts))
        counts = {"prompt_tokens": given, "completion_tokens": count}
        return {**counts, "total_tokens": given + count}

    async def _events(
        self, first: Piece, pieces: AsyncGenerator[Piece, None]
    ) -> AsyncIterator[str]:
        count = 1
        async with aclosing(pieces):
            yield self._event([self.part(first, is_first=True)])
            try:
                async for piece in pieces:
                    count += 1
                    yield self._event([self.part(piece, is_first=False)])
            except RefusedError as error:
                note(error)
                yield _line(_error(error))
                return
        if self._has_usage:
            yield self._event([], self._usage(count))
        yield "data: [DONE]\n\n"

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> str:
        head = self._head(self.part_kind)
        return _line({**head, "choices": choices, **({"usage": usage} if self._has_usage else {})})


async def respond(
    request: Request,
    bodies: Bodies,
    timeout_s: float,
    read: Callable[[Body], Awaitable[tuple[Answer, bool]]],
) -> Response:
    """Return the response to a request, or the protocol's error.

    ``read`` returns the answer to a body, and True to stream it. The whole text, or the first
    piece of a stream, must be ready within ``timeout_s``.
    """
    try:
        with bodies.open(request) as body:
            await body.read()
            async with asyncio.timeout(timeout_s):
                return await unless_disconnected(request, _response(read(body)))
    except RefusedError as error:
        return error_response(error)
    except TimeoutError:
        late = RefusedError(Reason.LATE, f"no answer within {timeout_s:g} s (--timeout)")
        return error_response(late)


def error_response(error: RefusedError) -> Response:
    """Return a refusal in the protocol's form, and log it."""
    note(error)
    return JSONResponse(_error(error), error.reason.status)


async def _response(read: Awaitable[tuple[Answer, bool]]) -> Response:
    answer, is_streamed = await read
    return await answer.streamed() if is_streamed else await answer.whole()


def find_model(models: Mapping[str, TextModel], name: str) -> TextModel:
    """Return the text model ``name``; raises `RefusedError`."""
    if name not in models:
        near = did_you_mean(name, models)
        raise RefusedError(Reason.UNKNOWN, f"model '{name:.80}': not a text model here{near}")
    return models[name]


def _error(error: RefusedError) -> dict[str, Any]:
    kind = _KINDS.get(error.reason, "server_error")
    code = "model_not_found" if error.reason is Reason.UNKNOWN else None
    return {"error": {"message": str(error), "type": kind, "param": None, "code": code}}


def _line(facts: dict[str, Any]) -> str:
    return f"data: {json.dumps(facts, ensure_ascii=False)}\n\n"

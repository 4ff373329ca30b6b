"""Answers with texts in OpenAI's form, complete or streamed."""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

from fastapi import Response
from fastapi.responses import JSONResponse, StreamingResponse

from tensoropt.runtime.text.session import Piece
from tensoropt.serving.log import note
from tensoropt.serving.openai.errors import error_body
from tensoropt.serving.protocol.refusals import RefusedError
from tensoropt.serving.text_model import TextModel

__all__ = ["Answer"]


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
                yield _line(error_body(error))
                return
        if self._has_usage:
            yield self._event([], self._usage(count))
        yield "data: [DONE]\n\n"

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> str:
        head = self._head(self.part_kind)
        return _line({**head, "choices": choices, **({"usage": usage} if self._has_usage else {})})


def _line(facts: dict[str, Any]) -> str:
    return f"data: {json.dumps(facts, ensure_ascii=False)}\n\n"

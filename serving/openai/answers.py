"""Answers with texts in OpenAI's form, complete or streamed."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar

from fastapi import Response
from fastapi.responses import JSONResponse, StreamingResponse

from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.errors import error_body
from tensoropt.serving.log import note
from tensoropt.serving.openai.logprobs import mean_logprob
from tensoropt.serving.protocol.refusals import RefusedError
from tensoropt.serving.text_model import TextModel

__all__ = ["Answer", "Choice"]


class Choice(ABC):
    """One of the texts of an answer, in the protocol's form; it is either whole or in parts."""

    @abstractmethod
    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Return the choice of all pieces of a text, without its index."""

    @abstractmethod
    def part(self, piece: Piece) -> dict[str, Any]:
        """Return the part to stream for the next piece, without its index."""


class Answer(ABC):
    """The continuations of ``prompts``, each ``count`` times, whole or streamed.

    ``options`` are the keyword arguments of `TextSession.stream`. Of ``best_of`` continuations of a
    prompt, the answer has the ``count`` likeliest.
    """

    prefix: ClassVar[str]
    whole_kind: ClassVar[str]
    part_kind: ClassVar[str]

    def __init__(
        self,
        model: TextModel,
        prompts: Sequence[list[int]],
        options: Mapping[str, Any],
        *,
        count: int = 1,
        best_of: int | None = None,
        has_usage: bool = False,
        has_running_usage: bool = False,
    ) -> None:
        self._model, self._prompts, self._options = model, prompts, options
        self._count, self._tries = count, best_of or count
        self._has_usage, self._has_running_usage = has_usage, has_running_usage
        self._facts = {"created": int(time.time()), "model": model.name}
        self._id = f"{self.prefix}-{uuid.uuid4().hex}"

    @abstractmethod
    def choice(self, prompt: int) -> Choice:
        """Return a new choice, of the prompt with this number."""

    async def response(self, *, is_streamed: bool) -> Response:
        """Return the response, complete or streamed; raises `RefusedError`."""
        return await self.streamed() if is_streamed else await self.whole()

    async def whole(self) -> Response:
        """Return the answer when it is complete; raises `RefusedError`."""
        texts: list[list[Piece]] = [[] for _ in range(len(self._prompts) * self._tries)]
        async with aclosing(self._pieces()) as pieces:
            async for piece in pieces:
                texts[piece.number].append(piece)
        choices = await asyncio.to_thread(self._choices, texts)  # long prompts have long forms
        usage = self._usage(sum(map(len, texts)), [text[0].copied for text in texts])
        return JSONResponse({**self._head(self.whole_kind), "choices": choices, "usage": usage})

    async def streamed(self) -> Response:
        """Return the answer as server-sent events, once its first piece is ready."""
        pieces = self._pieces()
        first = await anext(pieces)
        return StreamingResponse(self._events(first, pieces), media_type="text/event-stream")

    def _choices(self, texts: list[list[Piece]]) -> list[dict[str, Any]]:
        kept = [
            self.choice(prompt).whole(text)
            for prompt in range(len(self._prompts))
            for text in self._best(texts[prompt * self._tries : (prompt + 1) * self._tries])
        ]
        return [{"index": index, **choice} for index, choice in enumerate(kept)]

    def _best(self, texts: list[list[Piece]]) -> list[list[Piece]]:
        if len(texts) == self._count:
            return texts
        return sorted(texts, key=mean_logprob, reverse=True)[: self._count]

    def _pieces(self) -> AsyncGenerator[Piece, None]:
        prompts = [prompt for prompt in self._prompts for _ in range(self._tries)]
        return self._model.pieces(prompts, **self._options)

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, **self._facts}

    def _usage(self, count: int, copied: Sequence[int]) -> dict[str, Any]:
        """Return the usage, given the number of new tokens and the copied ones of each text.

        A prompt counts once, so tokens of it are cached that none of its texts had to read.
        """
        given, tries = sum(map(len, self._prompts)), self._tries
        cached = sum(min(copied[n : n + tries]) for n in range(0, len(copied), tries))
        counts = {"prompt_tokens": given, "completion_tokens": count}
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        return {**counts, "total_tokens": given + count, **details}

    async def _events(
        self, first: Piece, pieces: AsyncGenerator[Piece, None]
    ) -> AsyncIterator[str]:
        count = 0
        choices = [self.choice(n // self._tries) for n in range(len(self._prompts) * self._tries)]
        copied = [0] * len(choices)
        try:
            async with aclosing(_chained(first, pieces)) as chained:
                async for piece in chained:
                    count += 1
                    copied[piece.number] += piece.copied
                    form = choices[piece.number].part
                    part = await asyncio.to_thread(form, piece) if piece.prompt else form(piece)
                    usage = self._usage(count, copied) if self._has_running_usage else None
                    yield self._event([{"index": piece.number, **part}], usage)
        except RefusedError as error:
            note(error)
            yield _line(error_body(error))
            return
        if self._has_usage:
            yield self._event([], self._usage(count, copied))
        yield "data: [DONE]\n\n"

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> str:
        head = self._head(self.part_kind)
        return _line({**head, "choices": choices, **({"usage": usage} if self._has_usage else {})})


async def _chained(
    first: Piece, pieces: AsyncGenerator[Piece, None]
) -> AsyncGenerator[Piece, None]:
    async with aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece


def _line(facts: dict[str, Any]) -> str:
    return f"data: {json.dumps(facts, ensure_ascii=False)}\n\n"

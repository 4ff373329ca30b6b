"""OpenAI's completions API: `/v1/completions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from fastapi import APIRouter, Request, Response
from pydantic import Field, model_validator

from tensoropt.runtime.text.prompts import Prompt, list_prompts
from tensoropt.runtime.text.sampling import MOST_LIKELY
from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.body import Bodies, Body
from tensoropt.serving.openai.answers import Answer, Choice
from tensoropt.serving.openai.asked import Asked
from tensoropt.serving.openai.logprobs import TextOf, completion_logprobs
from tensoropt.serving.openai.responding import check_texts, find_model, respond
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.text_model import TextModel

__all__ = ["completion_routes"]

_Tokens = list[int]


class AskedCompletion(Asked):
    """A request for a completion."""

    prompt: str | _Tokens | list[str] | list[_Tokens]
    max_tokens: int = Field(16, ge=0)
    best_of: int | None = Field(None, ge=1)
    logprobs: int | None = Field(None, ge=0, le=MOST_LIKELY)
    echo: bool = False
    suffix: Literal[""] = ""

    @model_validator(mode="after")
    def has_tries(self) -> Self:
        """Refuse fewer tries than choices, and a stream of the best of several."""
        if self.best_of is not None and self.best_of < self.n:
            raise ValueError("best_of: expected at least n")
        if self.stream and self.best_of not in (None, self.n):
            raise ValueError("best_of: expected n, as a stream cannot wait for the best")
        return self

    @model_validator(mode="after")
    def has_a_text(self) -> Self:
        """Refuse an answer without a token."""
        if not (self.max_tokens or self.echo):
            raise ValueError("max_tokens: expected at least 1 without echo")
        return self

    @classmethod
    def parse_limited(cls, body: bytearray, most_prompts: int, most_tokens: int | None) -> Self:
        """Parse a body of at most ``most_prompts`` prompts; raises `RefusedError`.

        A prompt longer than the context of every model is refused early: passing it on is slow.
        """
        asked = cls.parse(body)
        prompts = list_prompts(asked.prompt)
        if len(prompts) > most_prompts:
            raise _refused(f"at most {most_prompts} (--max-prompts)", len(prompts))
        longest = max((len(text) for text in prompts if not isinstance(text, str)), default=0)
        if most_tokens is not None and longest > most_tokens:
            raise _refused(f"at most {most_tokens} tokens", longest)
        return asked

    def options(self, max_tokens: int) -> dict[str, Any]:
        """Return the keyword arguments of `TextSession.stream`."""
        ranked = 0 if self.best_of not in (None, self.n) else None
        return {
            **super().options(max_tokens),
            "logprobs": ranked if self.logprobs is None else self.logprobs,
            "prompt_logprobs": self.logprobs if self.echo else None,
        }


def _refused(expected: str, got: int) -> RefusedError:
    return RefusedError(Reason.INVALID, f"prompt: expected {expected}, got: {got}")


Echo = Sequence[tuple[int, str]]
"""The tokens of a prompt that comes before its completion, each with its part of the text."""


class CompletionChoice(Choice):
    """A completion; ``echo`` comes before its text, or without a text if it is ``alone``."""

    def __init__(self, echo: Echo, text_of: TextOf | None, *, alone: bool) -> None:
        self._echo, self._text_of, self._is_alone = echo, text_of, alone
        self._length = 0

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        return self._described(pieces)

    def part(self, piece: Piece) -> dict[str, Any]:
        return self._described([piece])

    def _described(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Return the form of the next pieces, after the echo if it has not been described."""
        finish = "length" if self._is_alone else pieces[-1].finish
        pieces = [*self._echoed(pieces[0]), *(() if self._is_alone else pieces)]
        text, offset = "".join(piece.text for piece in pieces), self._length
        self._length += len(text)
        logprobs = self._text_of and completion_logprobs(pieces, self._text_of, offset)
        return {"text": text, "logprobs": logprobs, "finish_reason": finish}

    def _echoed(self, first: Piece) -> list[Piece]:
        """Return the echo as pieces, once; the ``first`` piece has their probabilities."""
        echo, self._echo = self._echo, ()
        likely = (None, *first.prompt) if first.prompt else (None,) * len(echo)
        return [
            Piece(first.number, token, text, likely=own)
            for (token, text), own in zip(echo, likely, strict=True)
        ]


class Completion(Answer):
    """Completions in the protocol's form, after the ``echoes`` of the prompts."""

    prefix, whole_kind, part_kind = "cmpl", "text_completion", "text_completion"

    def __init__(
        self,
        model: TextModel,
        prompts: Sequence[_Tokens],
        asked: AskedCompletion,
        echoes: Sequence[Echo],
    ) -> None:
        limit = max(1, asked.max_tokens)
        asked.check_limits(limit)
        super().__init__(
            model,
            prompts,
            asked.options(limit),
            count=asked.n,
            best_of=asked.best_of,
            has_usage=asked.has_usage,
            has_running_usage=asked.has_running_usage,
        )
        self._text_of = model.text_of_token if asked.logprobs is not None else None
        # Ranks choose a token after each prompt; an echo alone leaves it out.
        self._echoes, self._is_alone = echoes, not asked.max_tokens

    def choice(self, prompt: int) -> CompletionChoice:
        return CompletionChoice(self._echoes[prompt], self._text_of, alone=self._is_alone)

    def _usage(self, count: int, copied: Sequence[int]) -> dict[str, Any]:
        return super()._usage(0 if self._is_alone else count, copied)


async def _echo(model: TextModel, prompt: Prompt, tokens: _Tokens) -> Echo:
    """Return the echo of a prompt, which has ``tokens``."""
    texts = await model.split(tokens, prompt if isinstance(prompt, str) else None)
    return [*zip(tokens, texts, strict=True)]


def completion_routes(
    models: Mapping[str, TextModel], bodies: Bodies, timeout_s: float
) -> APIRouter:
    """Return the route; a text, or its first streamed piece, is due within ``timeout_s``."""
    router = APIRouter(prefix="/v1")

    async def answer(body: Body) -> Response:
        most = max(model.limits.max_prompts for model in models.values())
        contexts = [model.context for model in models.values() if model.context is not None]
        longest = max(contexts) if len(contexts) == len(models) else None
        asked = await body.parse(AskedCompletion.parse_limited, most, longest)
        model = find_model(models, asked.model)
        prompts = list_prompts(asked.prompt)
        with model.refusals():
            check_texts(model, len(prompts), asked.best_of or asked.n)
            await model.check_grammar(asked.grammar)
            tokens = [await model.tokens_of(prompt) for prompt in prompts]
        echoes = [
            await _echo(model, prompt, own) if asked.echo else ()
            for prompt, own in zip(prompts, tokens, strict=True)
        ]
        return await Completion(model, tokens, asked, echoes).response(is_streamed=asked.stream)

    @router.post("/completions")
    async def complete(request: Request) -> Response:
        return await respond(request, bodies, timeout_s, answer)

    return router

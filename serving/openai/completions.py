"""OpenAI's completions API: `/v1/completions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from fastapi import APIRouter, Request, Response
from pydantic import Field, model_validator

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
    max_tokens: int = Field(16, ge=1)
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
    def has_logprobs_of_the_answer(self) -> Self:
        """Refuse the probabilities of a prompt."""
        if self.echo and self.logprobs is not None:
            raise ValueError("logprobs: expected none with echo, as the prompt has none")
        return self

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

    def options(self, max_tokens: int) -> dict[str, Any]:
        """Return the keyword arguments of `TextSession.stream`."""
        ranked = 0 if self.best_of not in (None, self.n) else None
        logprobs = ranked if self.logprobs is None else self.logprobs
        return {**super().options(max_tokens), "logprobs": logprobs}


def _refused(expected: str, got: int) -> RefusedError:
    return RefusedError(Reason.INVALID, f"prompt: expected {expected}, got: {got}")


class CompletionChoice(Choice):
    """A completion; ``echo`` comes before its text."""

    def __init__(self, echo: str, text_of: TextOf | None) -> None:
        self._echo, self._text_of = echo, text_of
        self._length = len(echo)

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        text = self._echo + "".join(piece.text for piece in pieces)
        return self._described(text, pieces, 0)

    def part(self, piece: Piece) -> dict[str, Any]:
        offset, self._length = self._length, self._length + len(piece.text)
        text, self._echo = self._echo + piece.text, ""
        return self._described(text, [piece], offset)

    def _described(self, text: str, pieces: Sequence[Piece], offset: int) -> dict[str, Any]:
        logprobs = self._text_of and completion_logprobs(pieces, self._text_of, offset)
        return {"text": text, "logprobs": logprobs, "finish_reason": pieces[-1].finish}


class Completion(Answer):
    """Completions in the protocol's form; ``echoes`` are the texts of the prompts, if wanted."""

    prefix, whole_kind, part_kind = "cmpl", "text_completion", "text_completion"

    def __init__(
        self, model: TextModel, prompts: Sequence[_Tokens], asked: AskedCompletion
    ) -> None:
        super().__init__(
            model,
            prompts,
            asked.options(asked.max_tokens),
            count=asked.n,
            best_of=asked.best_of,
            has_usage=asked.has_usage,
        )
        self._text_of = model.text_of_token if asked.logprobs is not None else None
        given = asked.prompts() if asked.echo else [""] * len(prompts)
        self._echoes = [p if isinstance(p, str) else model.text_of(p) for p in given]

    def choice(self, prompt: int) -> CompletionChoice:
        return CompletionChoice(self._echoes[prompt], self._text_of)


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
        with model.refusals():
            check_texts(model, len(asked.prompts()), asked.best_of or asked.n)
            await model.check_grammar(asked.grammar)
            tokens = [await model.tokens_of(prompt) for prompt in asked.prompts()]
        return await Completion(model, tokens, asked).response(is_streamed=asked.stream)

    @router.post("/completions")
    async def complete(request: Request) -> Response:
        return await respond(request, bodies, timeout_s, answer)

    return router

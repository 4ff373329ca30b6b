"""The common fields of OpenAI's requests for text."""

from __future__ import annotations

import uuid
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tensoropt.serving.openai.formats import ResponseFormat, StructuredOutputs
from tensoropt.serving.openai.given import Given
from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["Asked"]

_MOST_STOPS = 64
_MOST_BIASES = 1024
_Bias = Annotated[float, Field(ge=-100, le=100)]
_Token = Annotated[str, Field(pattern=r"^\d{1,9}$")]


class StreamOptions(Given):
    """Options of a streamed answer."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: Literal[False] = False

    @model_validator(mode="after")
    def has_usage_at_all(self) -> Self:
        """Refuse counts in each part without those at the end."""
        if self.continuous_usage_stats and not self.include_usage:
            raise ValueError("continuous_usage_stats: expected include_usage to be true")
        return self


class Asked(Given):
    """A request for text, with sampling options. Values that are not implemented are refused."""

    model: str
    n: int = Field(1, ge=1)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1)
    min_p: float = Field(0.0, ge=0, le=1)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 64)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float = Field(1.0, ge=0.01, le=2)
    logit_bias: dict[_Token, _Bias] = Field({}, max_length=_MOST_BIASES)
    stop: str | Annotated[list[str], Field(max_length=_MOST_STOPS)] = Field([])
    stop_token_ids: list[Annotated[int, Field(ge=0)]] = Field([], max_length=_MOST_STOPS)
    ignore_eos: bool = False
    min_tokens: int = Field(0, ge=0)
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    # Clients of vLLM send its defaults, which change nothing here.
    use_beam_search: Literal[False] = False
    length_penalty: float = Field(1.0, ge=1, le=1)
    include_stop_str_in_output: Literal[False] = False
    skip_special_tokens: Literal[True] = True
    spaces_between_special_tokens: Literal[True] = True
    allowed_token_ids: list[int] = Field([], max_length=0)
    bad_words: list[str] = Field([], max_length=0)
    priority: Literal[0] = 0
    return_token_ids: Literal[False] = False
    return_tokens_as_token_ids: Literal[False] = False

    @model_validator(mode="after")
    def has_options_of_streams(self) -> Self:
        """Refuse stream options without a stream, as OpenAI does."""
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options: expected stream to be true")
        return self

    @model_validator(mode="after")
    def has_an_end(self) -> Self:
        """Refuse a least number of tokens of a text that ends by its format."""
        if self.min_tokens and self.grammar is not None:
            raise ValueError("min_tokens: not with a format of the text, which ends it")
        return self

    @model_validator(mode="after")
    def has_one_format(self) -> Self:
        """Refuse two formats."""
        if self.response_format is not None and self.structured_outputs is not None:
            raise ValueError("structured_outputs: not with response_format")
        return self

    def check_limits(self, max_tokens: int) -> None:
        """Raise `RefusedError` unless a text of ``max_tokens`` tokens can have ``min_tokens``."""
        if self.min_tokens > max_tokens:
            raise RefusedError(
                Reason.INVALID,
                f"min_tokens: expected at most max_tokens, {max_tokens}, got: {self.min_tokens}",
            )

    @cached_property
    def grammar(self) -> str | None:
        """The grammar of the text, if it has a format."""
        wanted = self.response_format or self.structured_outputs
        return None if wanted is None else wanted.grammar()

    @property
    def has_usage(self) -> bool:
        """True if a stream ends with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def has_running_usage(self) -> bool:
        """True if each part of a stream has the token counts so far."""
        return self.stream_options is not None and self.stream_options.continuous_usage_stats

    def options(self, max_tokens: int) -> dict[str, Any]:
        """Return the keyword arguments of `TextSession.stream`."""
        plain = {"temperature", "top_p", "min_p"}
        penalties = {"presence_penalty", "frequency_penalty", "repetition_penalty"}
        return {
            **self.model_dump(include=plain | penalties),
            "top_k": self.top_k if self.top_k > 0 else None,
            "seed": uuid.uuid4().int >> 64 if self.seed is None else self.seed % (1 << 64),
            "biases": [(int(token), bias) for token, bias in self.logit_bias.items()],
            "stop": [self.stop] if isinstance(self.stop, str) else self.stop,
            "stop_tokens": self.stop_token_ids,
            "ignores_end": self.ignore_eos,
            "max_tokens": max_tokens,
            "min_tokens": self.min_tokens,
            "grammar": self.grammar,
        }

"""The common fields of OpenAI's requests for text."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tensoropt.runtime.text.sampling import MOST_LIKELY
from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["MOST_LOGPROBS", "Asked", "Given"]

MOST_LOGPROBS = MOST_LIKELY
"""Most likeliest tokens that a request may ask for."""

_MOST_STOPS = 64
_MOST_BIASES = 1024
_Bias = Annotated[float, Field(ge=-100, le=100)]
_Token = Annotated[str, Field(pattern=r"^\d{1,9}$")]
_Stop = Annotated[str, Field(min_length=1)]


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

    @classmethod
    def parse(cls, body: bytearray) -> Self:
        """Parse a body; raises `RefusedError`."""
        try:
            return cls.model_validate_json(bytes(body))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "body"
            raise RefusedError(Reason.INVALID, f"{where}: {first['msg']}") from None


class StreamOptions(Given):
    """Options of a streamed answer."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False


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
    repetition_penalty: float = Field(1.0, gt=0, le=2)
    logit_bias: dict[_Token, _Bias] = Field({}, max_length=_MOST_BIASES)
    stop: _Stop | Annotated[list[_Stop], Field(max_length=_MOST_STOPS)] = []
    stop_token_ids: list[Annotated[int, Field(ge=0)]] = Field([], max_length=_MOST_STOPS)
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None

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
        }

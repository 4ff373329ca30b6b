"""The common fields of OpenAI's requests for text."""

from __future__ import annotations

import uuid
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["Asked", "Given", "StreamOptions"]


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

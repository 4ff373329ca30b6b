"""JSON objects of requests to OpenAI's API."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["Given"]


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

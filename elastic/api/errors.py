"""Error responses: mistakes in a request and refusals of a job, as one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from tensoropt.elastic.api.guard import error_body
from tensoropt.elastic.control import RefusedError
from tensoropt.runtime.support.errors import UserError, did_you_mean, one_line

__all__ = ["add_handlers", "validation_line"]

_FIELDS = ("devices", "plan", "method", "wait_s", "to", "after", "limit", "every")


def add_handlers(app: FastAPI) -> None:
    """Register handlers that answer every error with ``{"error": "one line"}``."""
    for kind in (RefusedError, UserError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer_error)


async def _answer_error(request: Request, error: Exception) -> Response:
    status, text = 500, one_line(error)
    if isinstance(error, RefusedError):
        status, text = 409 if error.is_conflict else 400, str(error)
    elif isinstance(error, UserError):
        status = 400
    elif isinstance(error, RequestValidationError):
        status, text = 422, validation_line(error.errors()[0])
    elif isinstance(error, HTTPException):  # of the router, or for a body that is not text
        call = f"{request.method} {request.url.path}"
        allowed = (error.headers or {}).get("Allow", "another method")
        texts = {
            400: "body: expected JSON",
            404: f"{call}: unknown, expected one of /openapi.json",
            405: f"{call}: expected {allowed}",
        }
        status, text = error.status_code, texts.get(error.status_code, str(error.detail))
    return Response(error_body(text), status, media_type="application/json")


def validation_line(error: Mapping[str, Any]) -> str:
    """Return pydantic's error as `place: expected X, got: Y`."""
    kind = error["type"]
    where = ".".join(str(part) for part in error["loc"][1:])[:80] or str(error["loc"][0])
    if kind == "json_invalid":
        return f"body: expected JSON, got: {error['ctx']['error']}"
    if kind == "missing":
        return f"{where}: expected one, got: nothing"
    if kind == "extra_forbidden":
        return f"{where}: unknown{did_you_mean(where, {*_FIELDS} - {where})}"
    expected = str(error["msg"]).removeprefix("Input should be ")
    if kind in _EXPECTED:
        expected = _EXPECTED[kind].format(**error.get("ctx", {}))
    return f"{where}: expected {expected}, got: {error['input']!r:.80}"


_EXPECTED = {
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_type": "a whole number",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "model_attributes_type": "an object",
    "string_pattern_mismatch": "text like {pattern}",
    "string_too_long": "at most {max_length} characters",
    "string_type": "text",
    "too_long": "at most {max_length} of them",
    "too_short": "at least {min_length} of them",
}

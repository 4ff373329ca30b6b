"""Error responses: mistakes in a request and refusals of a job, as one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

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
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(UserError, _bad_request)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _not_found)
    app.add_exception_handler(Exception, _failed)


def _answer(status: int, text: str) -> Response:
    return Response(error_body(text), status, media_type="application/json")


async def _refused(_: Request, error: Exception) -> Response:
    return _answer(409 if cast(RefusedError, error).is_conflict else 400, str(error))


async def _failed(_: Request, error: Exception) -> Response:
    return _answer(500, one_line(error))


async def _bad_request(_: Request, error: Exception) -> Response:
    return _answer(400, one_line(error))


async def _invalid(_: Request, error: Exception) -> Response:
    return _answer(422, validation_line(cast(RequestValidationError, error).errors()[0]))


async def _not_found(request: Request, error: Exception) -> Response:
    """Answer the router's errors, and a body that is not text, with a message of our own."""
    found = cast(HTTPException, error)
    call = f"{request.method} {request.url.path}"
    texts = {
        400: "body: expected JSON",
        404: f"{call}: unknown, expected one of /openapi.json",
        405: f"{call}: expected {(found.headers or {}).get('Allow', 'another method')}",
    }
    return _answer(found.status_code, texts.get(found.status_code, str(found.detail)))


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
    return f"{where}: expected {_expected_text(error)}, got: {error['input']!r:.80}"


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


def _expected_text(error: Mapping[str, Any]) -> str:
    if error["type"] in _EXPECTED:
        return _EXPECTED[error["type"]].format(**error.get("ctx", {}))
    return str(error["msg"]).removeprefix("Input should be ")

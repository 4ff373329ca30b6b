"""Errors over HTTP, in the form of each protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse

from tensoropt.runtime.support.errors import printable
from tensoropt.serving.log import note
from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["error_body", "error_response", "error_response_at"]

_OPENAI = "/v1/"  # begins the paths of OpenAI's API
_MODEL = "model_not_found"
_SERVER_ERROR = 500


def error_response(error: RefusedError) -> Response:
    """Return a refusal in OpenAI's form, and log it."""
    note(error)
    return JSONResponse(error_body(error), error.reason.status)


def error_body(error: RefusedError) -> dict[str, Any]:
    """Return a refusal as the body of an answer of OpenAI's API, or as an event of a stream."""
    code = _MODEL if error.reason is Reason.UNKNOWN else None
    return _describe(error.reason.status, str(error), code)


def error_response_at(
    path: str, status: int, text: str, headers: Mapping[str, str] | None, code: str | None = None
) -> Response:
    """Return an error in the form of the protocol that has this path."""
    text = printable(text)
    body = _describe(status, text, code) if path.startswith(_OPENAI) else {"error": text}
    return JSONResponse(body, status, headers)


def _describe(status: int, text: str, code: str | None) -> dict[str, Any]:
    kind = "invalid_request_error" if status < _SERVER_ERROR else "server_error"
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}

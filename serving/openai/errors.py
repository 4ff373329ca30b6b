"""Errors in the form of OpenAI's API."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse

from tensoropt.serving.log import note
from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["error_body", "error_response"]

_KINDS = {Reason.INVALID: "invalid_request_error", Reason.UNKNOWN: "invalid_request_error"}


def error_response(error: RefusedError) -> Response:
    """Return a refusal in the protocol's form, and log it."""
    note(error)
    return JSONResponse(error_body(error), error.reason.status)


def error_body(error: RefusedError) -> dict[str, Any]:
    """Return a refusal as the body of an answer, or as an event of a stream."""
    kind = _KINDS.get(error.reason, "server_error")
    code = "model_not_found" if error.reason is Reason.UNKNOWN else None
    return {"error": {"message": str(error), "type": kind, "param": None, "code": code}}

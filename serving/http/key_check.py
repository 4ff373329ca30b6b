"""The check of API keys, before a request is read."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from tensoropt.serving.http.errors import error_response_at
from tensoropt.serving.log import note
from tensoropt.serving.protocol.keys import KEY_HEADER, Keys
from tensoropt.serving.protocol.refusals import RefusedError

__all__ = ["KeyCheck"]

_OPEN = ("/v2/health/live", "/v2/health/ready", "/metrics")
"""Paths for probes, which have no keys."""

_HEADERS = {"www-authenticate": "Bearer", "connection": "close"}


class KeyCheck:
    """Wraps an application: refuses requests without one of the keys."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer: ASGIApp = self._app
        path = scope.get("path", "")
        if scope["type"] == "http" and path not in _OPEN:
            given = dict(scope["headers"]).get(KEY_HEADER.encode(), b"")
            try:
                await self._keys.admit(given.decode("latin-1"))
            except RefusedError as error:
                note(error)
                status, code = error.reason.status, "invalid_api_key"
                answer = error_response_at(path, status, str(error), _HEADERS, code)
        await answer(scope, receive, send)

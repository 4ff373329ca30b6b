"""HTTP requests of the client to the API of a job."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit

from tensoropt.elastic.control import RefusedError
from tensoropt.runtime.support.errors import UserError

__all__ = ["Http", "NoAnswerError"]

_TIMEOUT_S = 30.0


class NoAnswerError(UserError):
    """The server cannot be reached, or its answer ended early."""


@dataclass(frozen=True)
class Http:
    """Sends requests to ``url`` with ``token``; ignores proxies of the environment."""

    url: str
    token: str = field(repr=False)

    def __post_init__(self) -> None:
        parts = self._parts()
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise UserError(f"URL: expected one such as http://host:8000, got: '{self.url}'")
        if not (self.token.isascii() and (self.token + "x").isprintable()):
            raise UserError("token: expected printable ASCII, got: something else")

    def get(self, path: str, *, wait_s: float = 0.0, **query: Any) -> Any:
        """Return the answer: parsed JSON, or text. Parameters that are None are omitted.

        Raises `RefusedError` if the job refuses, `UserError` otherwise.
        """
        given = {name: value for name, value in query.items() if value is not None}
        if wait_s:
            given["wait_s"] = wait_s
        return self._ask("GET", f"{path}?{urlencode(given)}" if given else path, None, wait_s)

    def post(self, path: str, *, wait_s: float = 0.0, **body: Any) -> Any:
        """Return the answer to a request that changes something; see `get`."""
        return self._ask("POST", path, json.dumps({**body, "wait_s": wait_s}), wait_s)

    def _ask(self, method: str, path: str, body: str | None, wait_s: float) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connection(wait_s + _TIMEOUT_S)
        try:
            connection.request(method, self._parts().path.rstrip("/") + path, body, headers)
            answer = connection.getresponse()
            return self._read(answer, answer.read().decode(errors="replace"))
        except (OSError, http.client.HTTPException) as error:
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NoAnswerError(f"{self.url}: no answer: {text}") from None
        finally:
            connection.close()

    def _read(self, answer: http.client.HTTPResponse, text: str) -> Any:
        is_json = answer.headers.get_content_type() == "application/json"
        try:
            facts: Any = json.loads(text) if is_json else text
            if answer.status < 300:
                return facts
            error = str(facts["error"])
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{self.url}: expected an answer of a job's API, got: {answer.status} {text[:60]!r}"
            ) from None
        if answer.status in (400, 409):
            raise RefusedError(error, is_conflict=answer.status == 409)
        raise UserError(f"{self.url}: {error}")

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        parts = self._parts()
        is_plain = parts.scheme == "http"
        kind = http.client.HTTPConnection if is_plain else http.client.HTTPSConnection
        return kind(str(parts.hostname), parts.port, timeout=timeout_s)

    def _parts(self) -> SplitResult:
        try:
            parts = urlsplit(self.url)
            _ = parts.port  # raises ValueError for an invalid port
        except ValueError as error:
            raise UserError(f"URL: {error}, got: '{self.url}'") from None
        return parts

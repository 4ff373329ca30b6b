"""Checks that every request passes before it is handled: its host, token and size."""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tensoropt.runtime.support.errors import one_line, printable

__all__ = ["Guard", "error_body"]

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]

_MOST_BYTES = 1 << 16
_BODY_S = 10.0
_MOST_REQUESTS = 200  # concurrent requests with the token
_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class _RefusalError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _LeftError(Exception):
    """The client closed its connection before its answer."""


@dataclass(frozen=True)
class Guard:
    """An ASGI application that passes permitted requests on to ``app``.

    ``token``: required in the header Authorization under /v1, empty for none. ``hosts``: permitted
    values of the header Host, None for any. They defend against DNS rebinding: a page of another
    site, under a name that resolves to this address, must not read anything here. A request that
    changes something must be JSON. Pages of other sites can send JSON only after a CORS preflight,
    which is never granted.

    A connection without the token gets one answer. Only requests with the token count towards the
    limit of concurrent requests, so strangers cannot exhaust it.
    """

    app: _App
    token: str
    hosts: frozenset[str] | None
    _requests: set[int] = field(default_factory=set)

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send
    ) -> None:
        if scope["type"] != "http":
            return
        answer = _Answer(send)
        try:
            headers = {n.decode("latin-1"): v.decode("latin-1") for n, v in scope["headers"]}
            self._check_host(headers.get("host", ""))
            if scope["path"].startswith("/v1"):
                self._check_token(headers.get("authorization", ""))
                _check_kind(scope["method"], headers)
                with self._counted(id(scope)):
                    body = await _read_body(headers, receive)
                    await self.app(scope, _replay(body, receive), answer)
            else:  # no token needed: never wait for a body, and take no further request
                _check_no_body(headers)
                answer.is_last = True
                await self.app(scope, _replay(b"", receive), answer)
        except _LeftError:
            pass
        except _RefusalError as error:
            await answer.refuse(error.status, str(error))
        except Exception as error:
            print(f"error: API: {printable(one_line(error))}", file=sys.stderr)
            await answer.refuse(500, one_line(error))

    @contextmanager
    def _counted(self, request: int) -> Iterator[None]:
        """Count a permitted request; refuse it above the limit."""
        if len(self._requests) >= _MOST_REQUESTS:
            raise _RefusalError(503, f"{_MOST_REQUESTS} requests are under way already, try again")
        self._requests.add(request)
        try:
            yield
        finally:
            self._requests.discard(request)

    def _check_host(self, host: str) -> None:
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self.hosts is not None and name.lower() not in self.hosts:
            names = ", ".join(sorted(self.hosts))
            raise _RefusalError(403, f"Host: expected one of {names}, got: '{name}'")

    def _check_token(self, given: str) -> None:
        if not self.token:
            return
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer":
            raise _RefusalError(401, "token: expected the header 'Authorization: Bearer TOKEN'")
        if not hmac.compare_digest(token.strip().encode(), self.token.encode()):
            raise _RefusalError(401, "token: wrong")


def _check_kind(method: str, headers: dict[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and kind != "application/json":
        raise _RefusalError(415, f"Content-Type: expected application/json, got: '{kind}'")


def _check_no_body(headers: dict[str, str]) -> None:
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or length.strip("0"):
        raise _RefusalError(413, "body: expected none outside /v1")


async def _read_body(headers: dict[str, str], receive: _Receive) -> bytes:
    """Return the whole body; refuse one that is too large or too slow."""
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > _MOST_BYTES:
        raise _RefusalError(413, f"body: expected at most {_MOST_BYTES} bytes, got: {length}")
    try:
        return await asyncio.wait_for(_receive_body(receive), _BODY_S)
    except TimeoutError:
        raise _RefusalError(408, f"body: expected within {_BODY_S:g} s") from None


async def _receive_body(receive: _Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > _MOST_BYTES:
            raise _RefusalError(413, f"body: expected at most {_MOST_BYTES} bytes, got: more")
    return body


def _replay(body: bytes, receive: _Receive) -> _Receive:
    """Return a receive callable that replays ``body`` and then continues with ``receive``."""
    left = [body]

    async def replay() -> _Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replay


class _Answer:
    """Adds the common headers; ignores a second response.

    ``is_last``: the connection is closed after it.
    """

    def __init__(self, send: _Send) -> None:
        self._send, self._started = send, False
        self.is_last = False

    async def __call__(self, message: _Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            own = [*_HEADERS, *([(b"connection", b"close")] if self.is_last else [])]
            message = {**message, "headers": [*message["headers"], *own]}
        try:
            await self._send(message)
        except RuntimeError as error:
            if "closed" not in str(error):
                raise
            raise _LeftError from None  # uvicorn reports it only to the last of several requests

    async def refuse(self, status: int, text: str) -> None:
        if self._started:
            return
        self.is_last = True  # the request's body may be unread
        body = error_body(text)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        with suppress(_LeftError):
            await self({"type": "http.response.start", "status": status, "headers": headers})
            await self({"type": "http.response.body", "body": body})


def error_body(text: str) -> bytes:
    """Return the JSON body of an error response."""
    return json.dumps({"error": text}).encode()

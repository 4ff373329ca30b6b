"""The server of a job's API, on a thread of the coordinator."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from tensoropt.elastic.api.app import make_app
from tensoropt.elastic.api.guard import Guard
from tensoropt.elastic.control import JobControl
from tensoropt.elastic.jobs import Address
from tensoropt.runtime.launch.shared_memory import LOOPBACK
from tensoropt.runtime.support.closing import Closing
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.http_connection import BoundedConnection
from tensoropt.runtime.support.http_server import listen, server_config

__all__ = ["Serving", "serve"]

_START_S = 30.0
_GRACE_S = 2
_MOST_AHEAD = 16  # pipelined requests per connection


def serve(
    control: JobControl,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    hosts: Sequence[str] = (),
) -> Serving:
    """Serve ``control`` from a thread and return the server; close it after the job's end.

    ``port`` 0 picks a free one. ``token``: None generates one, an empty one admits everybody.
    ``hosts``: permitted Host names in addition to ``host``. A server with a token on all addresses
    permits any name if ``hosts`` is empty. Raises `UserError` if it cannot listen there.
    """
    token = secrets.token_urlsafe(32) if token is None else token
    names = _names(host, hosts)
    if names is None and not token:
        raise UserError(f"host {host}: expected a token, or permitted host names")
    return Serving(control, listen("API", host, port), host, token, names)


class Serving(Closing):
    """A running server at ``url``, for holders of ``token``; ``page`` is its page's address."""

    def __init__(
        self,
        control: JobControl,
        listening: socket.socket,
        host: str,
        token: str,
        hosts: frozenset[str] | None,
    ) -> None:
        port = listening.getsockname()[1]
        name = socket.gethostname() if _is_any(host) else host
        self.url = f"http://{_bracket(name)}:{port}"
        self.token = token
        self.page = Address(self.url, token, os.getpid()).page
        self._closing = threading.Event()
        self._socket = listening
        guard = Guard(make_app(control, self._closing), token, hosts)
        config = server_config(guard, _Connection, _GRACE_S, log_level="critical")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)
        self._thread.start()
        self._wait()

    def close(self) -> None:
        """Answer waiting requests and end; idempotent."""
        self._closing.set()
        self._server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        with self._socket:
            self._server.run(sockets=[self._socket])

    def _wait(self) -> None:
        end = time.monotonic() + _START_S
        while not self._server.started:
            if time.monotonic() >= end or not self._thread.is_alive():
                raise UserError(f"API: the server at {self.url} did not start")
            time.sleep(0.005)


class _Connection(BoundedConnection, AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's default protocol, with limits."""

    def on_headers_complete(self) -> None:
        """Start a request; too many pipelined requests fail the parser and close the connection.

        uvicorn's other parser, h11, reads no request ahead.
        """
        super().on_headers_complete()
        if len(self.pipeline) > _MOST_AHEAD:
            raise ValueError(f"expected at most {_MOST_AHEAD} requests ahead, got: more")


def _names(host: str, more: Sequence[str]) -> frozenset[str] | None:
    """Return the permitted Host names, None for any."""
    if _is_any(host) and not more:
        return None
    return frozenset(name.lower() for name in (*map(_bracket, (*LOOPBACK, host)), *more))


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host

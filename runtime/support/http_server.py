"""Sockets and settings of HTTP servers: a job's API, and served plans."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from tensoropt.runtime.support.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["listen", "server_config"]

_BACKLOG = 2048


def listen(name: str, host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 picks a free one.

    Raises `UserError`, which begins with the server's ``name``, if the address cannot be bound.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        # Connections inherit it. asyncio sets it only for sockets that name their protocol; without
        # it a second write, the body after the headers, waits 40 ms for the client's delayed ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, OverflowError) as error:
        raise UserError(f"{name}: cannot listen at {host}, port {port}: {error}") from None


def server_config(
    app: Callable[..., Any], http: type, grace_s: int, **settings: Any
) -> uvicorn.Config:
    """Return uvicorn's settings: no logs, no signals of its own, connections of class ``http``.

    ``grace_s`` is the time that requests in progress have at the end. ``settings`` are further
    settings of uvicorn.
    """
    return uvicorn.Config(
        app,
        http=http,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=grace_s,
        **settings,
    )

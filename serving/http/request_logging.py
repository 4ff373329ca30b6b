"""Logging of HTTP requests, and their ids in headers."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tensoropt.serving.log import ID_HEADER, log_request, note

__all__ = ["RequestLogging"]


class RequestLogging:
    """Wraps an application: adds an id to each answer, and logs each request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        given = dict(scope["headers"]).get(ID_HEADER.encode())
        what, client = f"{scope['method']} {scope['path']}", scope["client"] or ("-", 0)
        with log_request(
            "http", what, f"{client[0]}:{client[1]}", given and given.decode("latin-1")
        ) as line:

            async def send_with_id(message: Message) -> None:
                if message["type"] == "http.response.start":
                    line.status = message["status"]
                    header = (ID_HEADER.encode(), line.id.encode())
                    message["headers"] = [*message.get("headers", ()), header]
                await send(message)

            try:
                await self._app(scope, receive, send_with_id)
            except Exception as error:  # the application has answered it
                note(error)

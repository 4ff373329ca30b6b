"""Requests of HTTP in the log, and their ids in headers."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tensoropt.serving.log import ID_HEADER, logged, note

__all__ = ["Logged"]


class Logged:
    """Wraps an application: adds ids to its answers, and a line to the log for each."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        given = dict(scope["headers"]).get(ID_HEADER.encode())
        what, client = f"{scope['method']} {scope['path']}", scope["client"] or ("-", 0)
        with logged(
            "http", what, f"{client[0]}:{client[1]}", given and given.decode("latin-1")
        ) as line:

            async def sent(message: Message) -> None:
                if message["type"] == "http.response.start":
                    line.status = message["status"]
                    own = (ID_HEADER.encode(), line.id.encode())
                    message["headers"] = [*message.get("headers", ()), own]
                await send(message)

            try:
                await self._app(scope, receive, sent)
            except Exception as error:  # the application has answered it
                note(error)

"""Not waiting for ever for clients who do not read their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

__all__ = ["SEND_S", "Patience"]

SEND_S = 30.0
"""How long a client may take for a piece of an answer."""

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]


@dataclass(frozen=True)
class Patience:
    """Ends an answer, and so its connection, that a client does not take; an ASGI application."""

    app: _App

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send
    ) -> None:
        async def sent(message: _Message) -> None:
            async with asyncio.timeout(SEND_S):
                await send(message)

        await self.app(scope, receive, sent)

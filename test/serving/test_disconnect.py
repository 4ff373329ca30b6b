"""Clients that close their connection before they are answered."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

from fake_sessions import FakeSession, served, until
from fastapi import FastAPI
from test_completions import URL, Counting

from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.app import make_app
from tensoropt.serving.http.body import Bodies
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.openai.completions import completion_routes
from tensoropt.serving.options import TextLimits
from tensoropt.serving.text_model import TextModel


async def _ask_and_leave(app: FastAPI, path: str, body: object, leaves: asyncio.Event) -> None:
    """Send a request, and close the connection once ``leaves`` is set."""
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        assert leaves.is_set(), f"an answer: {message}"

    where = {"path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", **where}
    await app({**scope, "headers": [], "server": ("x", 80), "client": ("y", 1)}, receive, send)


class Slow(Counting):
    """Leaves the event loop time to end a test that fails."""

    def pieces(self, *arguments: Any, **how: Any) -> Iterator[Piece]:
        for piece in super().pieces(*arguments, **how):
            time.sleep(0.001)
            yield piece


def test_a_text_that_is_not_streamed_ends() -> None:
    async def check() -> None:
        session, app, leaves = Slow(), FastAPI(), asyncio.Event()
        model = TextModel("m", session, TextLimits(), Metrics())
        app.include_router(completion_routes({"m": model}, Bodies(1 << 16), 60.0))
        body = {"model": "m", "prompt": "a", "max_tokens": 1 << 40}
        asked = asyncio.create_task(_ask_and_leave(app, URL, body, leaves))
        while not session.asked:
            await asyncio.sleep(0.01)
        leaves.set()
        assert await asyncio.to_thread(session.closed.wait, 20)
        await asyncio.wait_for(asked, 20)

    asyncio.run(check())


def test_a_request_that_waits_is_not_computed() -> None:
    async def check() -> None:
        session, leaves = FakeSession(), asyncio.Event()
        session.gate.clear()
        async with served(session) as service:
            app = make_app(service, Bodies(1 << 16))
            entry = {"name": "x", "datatype": "FP32", "shape": [4, 3]}
            bodies = [{"inputs": [{**entry, "data": [value] * 12}]} for value in (1, 2, 3)]
            asked = []
            waiting = b'tensoropt_queue_requests{model="double"} 1.0'
            under_way = (
                lambda: session.begun == 1,
                lambda: session.begun == 2,
                lambda: waiting in service.metrics.text(),
            )
            for body, is_there in zip(bodies, under_way, strict=True):
                path = "/v2/models/double/infer"
                asked.append(asyncio.create_task(_ask_and_leave(app, path, body, leaves)))
                await until(is_there)
            leaves.set()
            await asyncio.wait_for(asyncio.gather(*asked), 20)
            session.gate.set()
            await until(lambda: len(session.runs) == 2)
        assert sorted(run[0, 0] for run in session.runs) == [1.0, 2.0]
        text = service.metrics.text()
        assert b'{model="double",protocol="http",status="CANCELLED"} 3.0' in text

    asyncio.run(check())

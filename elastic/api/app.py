"""The API of a job, version 1: its paths and their handlers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path as FilePath
from typing import Annotated, Any, TypeVar, cast

from fastapi import APIRouter, FastAPI, Path, Query, Response, Security
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from tensoropt.elastic.api.errors import add_handlers
from tensoropt.elastic.api.schema import (
    MOST_STEPS,
    Ended,
    Error,
    Events,
    Migrate,
    Profile,
    Scale,
    Steps,
    Stop,
    SwitchState,
    WaitS,
    example_status,
)
from tensoropt.elastic.api.switches import Switches
from tensoropt.elastic.control import JobControl, JobStatus, StepRow
from tensoropt.elastic.records import facts_of
from tensoropt.runtime.support.version import __version__

__all__ = ["make_app", "openapi_text", "page_and_policy", "thinned"]

_Found = TypeVar("_Found")

_LOOK_S = 0.05
_REFUSAL_S = 0.3  # long enough for most refusals to arrive
_DESCRIPTION = """\
A training job that changes its devices while it runs. Every path under /v1 requires the header
`Authorization: Bearer TOKEN`. Every error is an object with one line, `error`. Times of day count
seconds since 1970, durations are in seconds, sizes in bytes."""

After = Annotated[int, Query(ge=0, le=1 << 53)]
_WAITING = Query(description="how long to wait for a result before answering, in seconds")


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    texts = {
        400: "The job cannot do that",
        401: "The token is missing or wrong",
        409: "The job cannot do that now: a switch is under way, or it has ended",
        415: "The body is not application/json",
        422: "The request is not understood",
        500: "The job could not answer",
    }
    return {code: {"model": Error, "description": texts[code]} for code in (*statuses, 401, 500)}


_SWITCHING: dict[int | str, dict[str, Any]] = {
    200: {"model": SwitchState, "description": "The switch is done"},
    202: {"model": SwitchState, "description": "It is under way"},
    **_errors(400, 409, 415, 422),
}


def make_app(control: JobControl, closing: threading.Event | None = None) -> FastAPI:
    """Return the application; waiting requests are answered once ``closing`` is set."""
    app = FastAPI(
        title="tensoropt elastic job",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,
    )
    add_handlers(app)
    _add_page(app)
    router = APIRouter(prefix="/v1", dependencies=[Security(HTTPBearer(auto_error=False))])
    patience = _Patience(closing or threading.Event())
    _add_reading(router, control, patience)
    _add_switching(router, control, patience)
    _add_stop(router, control, patience)
    app.include_router(router)
    return app


class _Patience:
    """Polls for a result, until a timeout or the end of the server."""

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing

    async def poll(self, look: Callable[[], _Found], wait_s: float) -> _Found:
        """Return the first truthy result of ``look``, or its last one after ``wait_s`` seconds."""
        end = time.monotonic() + wait_s
        while not (found := await run_in_threadpool(look)):
            if time.monotonic() >= end or self._closing.is_set():
                break
            await asyncio.sleep(_LOOK_S)
        return found


def _add_page(app: FastAPI) -> None:
    page, policy = page_and_policy()

    @app.get("/", include_in_schema=False)
    async def page_of_the_job() -> HTMLResponse:
        return HTMLResponse(page, headers={"content-security-policy": policy})


def page_and_policy() -> tuple[str, str]:
    """Return the page and its content security policy.

    The policy allows the page's own script and style, and requests to this server.
    """
    page = FilePath(__file__).with_name("page.html").read_text(encoding="utf-8")
    script, style = (_hash(page, tag) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy


def _hash(page: str, tag: str) -> str:
    (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(facts: Any, status: int = 200) -> Response:
    return JSONResponse(facts, status)


def _add_reading(router: APIRouter, control: JobControl, patience: _Patience) -> None:
    example = {"content": {"application/json": {"example": example_status()}}}

    @router.get(
        "/status", summary="Status of the job", response_model=JobStatus,
        responses={**_errors(), 200: example},
    )  # fmt: skip
    async def status() -> Response:
        return _json(facts_of(await run_in_threadpool(control.status)))

    @router.get("/events", summary="Events", response_model=Events, responses=_errors(422))
    async def events(after: After = 0, wait_s: Annotated[WaitS, _WAITING] = 0.0) -> Response:
        found = await patience.poll(lambda: control.events(after), wait_s)
        return _json({"events": [facts_of(event) for event in found]})

    @router.get("/steps", summary="The log", response_model=Steps, responses=_errors(422))
    async def steps(
        after: After = 0,
        limit: Annotated[
            int, Query(ge=1, le=MOST_STEPS, description="read at most this number of last steps")
        ] = 10_000,
        every: Annotated[
            int, Query(ge=1, le=MOST_STEPS, description="number of steps per row of means")
        ] = 1,
    ) -> Response:
        return await run_in_threadpool(_steps, control, after, limit, every)

    @router.get(
        "/output", summary="Output of the ranks, the last 64 KiB",
        response_class=PlainTextResponse, responses=_errors(),
    )  # fmt: skip
    async def output() -> Response:
        return PlainTextResponse(await run_in_threadpool(control.output))

    @router.get(
        "/profile", summary="Throughput by number of devices",
        response_model=Profile, responses=_errors(400, 422),
    )  # fmt: skip
    async def profile(
        devices: Annotated[
            str | None,
            Query(
                pattern=r"^[1-9][0-9]{0,6}(,[1-9][0-9]{0,6})*$",
                max_length=1000,
                description="numbers such as 1,2,4; default: the family's counts",
            ),
        ] = None,
    ) -> Response:
        counts = None if devices is None else [int(count) for count in devices.split(",")]
        rows = await run_in_threadpool(control.profile, counts)
        return _json({"rows": [facts_of(row) for row in rows]})


def _steps(control: JobControl, after: int, limit: int, every: int) -> Response:
    rows = thinned(control.steps(after, limit), every)
    return _json({"every": every, "steps": [facts_of(row) for row in rows]})


def thinned(rows: Sequence[StepRow], every: int) -> Iterator[StepRow]:
    """Yield one row of means per ``every`` steps, from step 1, with the number of its last step."""
    if every == 1:
        yield from rows
        return
    for _, group in groupby(rows, key=lambda row: (row.step - 1) // every):
        steps = list(group)
        losses = [row.loss for row in steps if row.loss is not None]
        loss = statistics.fmean(losses) if losses else None
        time_s = statistics.fmean(row.time_s for row in steps)
        last = steps[-1]
        yield StepRow(last.step, loss, time_s, last.devices, last.generation)


def _add_switching(router: APIRouter, control: JobControl, patience: _Patience) -> None:
    switches = Switches()

    async def answer(number: int, wait_s: float) -> Response:
        future = switches.future(number)
        if not await patience.poll(future.done, max(wait_s, _REFUSAL_S)):
            return _json(switches.state(number), 202)
        future.result()
        return _json(switches.state(number))

    @router.post(
        "/scale", summary="Change the number of devices, or the plan",
        response_model=SwitchState, responses=_SWITCHING,
    )  # fmt: skip
    async def scale(asked: Scale) -> Response:
        future = await run_in_threadpool(
            control.scale, asked.devices, plan=asked.plan, method=asked.method
        )
        return await answer(switches.add(future), asked.wait_s)

    @router.post(
        "/migrate", summary="Go to other devices",
        response_model=SwitchState, responses=_SWITCHING,
    )  # fmt: skip
    async def migrate(asked: Migrate) -> Response:
        future = await run_in_threadpool(control.migrate, asked.to, method=asked.method)
        return await answer(switches.add(future), asked.wait_s)

    @router.get(
        "/switches/{number}", summary="State of a switch that was requested over HTTP",
        response_model=SwitchState, responses=_errors(400, 422),
    )  # fmt: skip
    async def switch(
        number: Annotated[int, Path(ge=1, le=1 << 53)],
        wait_s: Annotated[WaitS, _WAITING] = 0.0,
    ) -> Response:
        await patience.poll(switches.future(number).done, wait_s)
        return _json(switches.state(number))


def _add_stop(router: APIRouter, control: JobControl, patience: _Patience) -> None:
    @router.post(
        "/stop", summary="Write a checkpoint and end", response_model=Ended,
        responses={
            200: {"model": Ended, "description": "The job has ended"},
            202: {"model": Ended, "description": "It will"},
            **_errors(400, 409, 415, 422),
        },
    )  # fmt: skip
    async def stop(asked: Stop) -> Response:
        future = await run_in_threadpool(control.stop)
        ended = await patience.poll(future.done, asked.wait_s)
        if ended:
            future.result()
        return _json({"ended": ended}, 200 if ended else 202)


def openapi_text() -> str:
    """Return the OpenAPI description as JSON; no job is needed, as no handler runs."""
    return json.dumps(make_app(cast(JobControl, None)).openapi(), indent=1) + "\n"

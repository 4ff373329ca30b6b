"""The Open Inference Protocol over HTTP, version 2, and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from tensoropt.runtime.support.errors import one_line
from tensoropt.runtime.support.version import __version__
from tensoropt.serving.http.body import Bodies
from tensoropt.serving.http.disconnect import unless_disconnected
from tensoropt.serving.http.errors import error_response_at
from tensoropt.serving.log import note
from tensoropt.serving.metrics import CONTENT_TYPE
from tensoropt.serving.protocol.bodies import (
    LENGTH_HEADER,
    is_long_to_read,
    is_long_to_write,
    read_body,
    write_body,
)
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.protocol.requests import Infer
from tensoropt.serving.service import Service

__all__ = ["make_app"]

_CLOSING = {"connection": "close"}
_UNREAD = (Reason.LARGE, Reason.SLOW, Reason.ENCODED, Reason.UNAVAILABLE, Reason.UNKNOWN)
"""Refusals before the body was read: its rest must not be parsed as the next request."""


def make_app(service: Service, bodies: Bodies, more: Sequence[APIRouter] = ()) -> FastAPI:
    """Return the application; ``more`` adds routes of other protocols."""
    app = FastAPI(
        title="tensoropt",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(HTTPException, _not_found)
    app.add_exception_handler(Exception, _failed)
    for router in (_server_routes(service), _model_routes(service), _infer(service, bodies)):
        app.include_router(router)
    for router in more:
        app.include_router(router)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    note(error)
    refused = cast(RefusedError, error)
    headers = _CLOSING if refused.reason in _UNREAD else None
    return error_response_at(request.url.path, refused.reason.status, str(refused), headers)


async def _failed(request: Request, error: Exception) -> Response:
    return error_response_at(request.url.path, 500, one_line(error), _CLOSING)


async def _not_found(request: Request, error: Exception) -> Response:
    found = cast(HTTPException, error)
    what = f"{request.method} {request.url.path:.80}"
    wanted = (found.headers or {}).get("Allow", "another path, such as /v2")
    text = f"{what}: unknown, expected {wanted}"
    return error_response_at(request.url.path, found.status_code, text, _CLOSING)


def _server_routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.get("/v2")
    async def metadata() -> Response:
        return JSONResponse(service.metadata())

    @router.get("/v2/health/live")
    async def live() -> Response:
        return JSONResponse({"live": True})

    @router.get("/v2/health/ready")
    async def ready() -> Response:
        return _state({"ready": service.is_ready}, service.index())

    @router.post("/v2/repository/index")
    async def index() -> Response:
        return JSONResponse(service.index())

    @router.get("/v2/models/stats")
    async def statistics() -> Response:
        return JSONResponse(service.statistics("", ""))

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    return router


def _state(facts: dict[str, Any], index: Sequence[Mapping[str, str]]) -> Response:
    """Return a readiness response; the log names the unready models of ``index``, with reasons."""
    if facts["ready"]:
        return JSONResponse(facts)
    why = [f"model '{entry['name']}': {entry['reason']}" for entry in index if entry["reason"]]
    note(RefusedError(Reason.UNAVAILABLE, "; ".join(why)))
    return JSONResponse(facts, 503)


def _model_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v2/models/{name}")

    @router.get("/stats")
    @router.get("/versions/{version}/stats")
    async def statistics(name: str, version: str = "") -> Response:
        return JSONResponse(service.statistics(name, version))

    @router.get("")
    @router.get("/versions/{version}")
    async def metadata(name: str, version: str = "") -> Response:
        return JSONResponse(service.model_metadata(name, version))

    @router.get("/ready")
    @router.get("/versions/{version}/ready")
    async def ready(name: str, version: str = "") -> Response:
        is_ready = service.is_model_ready(name, version)
        entries = [entry for entry in service.index() if entry["name"] == name]
        return _state({"name": name, "ready": is_ready}, entries)

    return router


def _infer(service: Service, bodies: Bodies) -> APIRouter:
    router = APIRouter(prefix="/v2/models/{name}")

    @router.post("/infer")
    @router.post("/versions/{version}/infer")
    async def infer(request: Request, name: str, version: str = "") -> Response:
        async def read() -> Infer:
            found, json_length = await body.read(), request.headers.get(LENGTH_HEADER)
            if is_long_to_read(found, json_length):
                return await bodies.side.run(read_body, found, json_length)
            return read_body(found, json_length)

        with bodies.open(request) as body:
            wanted = partial(unless_disconnected, request)
            answer = await service.infer(name, version, read, "http", wanted)
            if is_long_to_write(answer):
                content, json_size = await bodies.side.run(write_body, answer)
            else:
                content, json_size = write_body(answer)
        if json_size is None:
            return Response(content, media_type="application/json")
        headers = {LENGTH_HEADER: str(json_size)}
        return Response(content, headers=headers, media_type="application/octet-stream")

    return router

"""The list of models in OpenAI's form: `/v1/models`."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from tensoropt.serving.http.errors import error_response
from tensoropt.serving.openai.responding import find_model
from tensoropt.serving.protocol.refusals import RefusedError
from tensoropt.serving.service import Service

__all__ = ["listing_routes"]


def listing_routes(service: Service) -> APIRouter:
    """Return the routes that list the models of texts and the encoders, and show one."""
    router = APIRouter(prefix="/v1")
    created = int(time.time())

    def names() -> list[str]:
        return [*service.texts, *service.encoders]

    def describe(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": created, "owned_by": "tensoropt"}

    @router.get("/models")
    async def list_models() -> Response:
        return JSONResponse({"object": "list", "data": [describe(name) for name in names()]})

    @router.get("/models/{name}")
    async def show_model(name: str) -> Response:
        try:
            find_model(dict.fromkeys(names()), name, "a model of texts")
        except RefusedError as error:
            return error_response(error)
        return JSONResponse(describe(name))

    return router

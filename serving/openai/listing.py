"""The list of models in OpenAI's form: `/v1/models`."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from tensoropt.runtime.support.errors import did_you_mean
from tensoropt.serving.http.errors import error_response
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.service import Service

__all__ = ["listing_routes"]


def listing_routes(service: Service) -> APIRouter:
    """Return the routes that list the models of texts and the encoders, and show one."""
    router = APIRouter(prefix="/v1")
    created = int(time.time())

    def names() -> list[str]:
        encoders = [name for name, model in service.models.items() if model.encoder is not None]
        return [*service.texts, *encoders]

    def describe(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": created, "owned_by": "tensoropt"}

    @router.get("/models")
    async def list_models() -> Response:
        return JSONResponse({"object": "list", "data": [describe(name) for name in names()]})

    @router.get("/models/{name}")
    async def show_model(name: str) -> Response:
        if name in names():
            return JSONResponse(describe(name))
        near = did_you_mean(name, names())
        why = f"model '{name:.80}': not a model of texts here{near}"
        return error_response(RefusedError(Reason.UNKNOWN, why))

    return router

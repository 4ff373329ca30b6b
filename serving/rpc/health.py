"""gRPC's own protocol of health, `grpc.health.v1`, which Kubernetes and load balancers ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from tensoropt.serving.protocol import messages
from tensoropt.serving.service import Service

__all__ = ["health_handler"]

_LOOK_S = 0.25  # a client that watches holds up the end of the server for this long
_NAMES = ("", messages.SERVICE)
_Status = health_pb2.HealthCheckResponse


def health_handler(service: Service) -> grpc.GenericRpcHandler:
    """Return what answers for the server, and for its one service: is it ready?"""

    def status(name: str) -> int | None:
        if name not in _NAMES:
            return None
        found: int = _Status.SERVING if service.is_ready else _Status.NOT_SERVING
        return found

    async def check(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        found = status(await _service(raw, context))
        if found is None:
            expected = f"service: expected '' or '{messages.SERVICE}'"
            return await context.abort(grpc.StatusCode.NOT_FOUND, expected)
        return _Status(status=found)

    async def watch(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        name, told = await _service(raw, context), None
        while True:
            is_last, found = service.is_ending, status(name)
            found = _Status.SERVICE_UNKNOWN if found is None else found
            if found != told:
                yield _Status(status=found)
            if is_last:
                return
            told = found
            await asyncio.sleep(_LOOK_S)

    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    codec = {"response_serializer": _Status.SerializeToString}
    handlers = {"Check": unary(check, **codec), "Watch": stream(watch, **codec)}
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers)


async def _service(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """Return the name that a request asks for; ends a call that is no request."""
    try:
        name: str = health_pb2.HealthCheckRequest.FromString(raw).service
    except DecodeError:  # gRPC itself would say UNKNOWN
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"message: expected a HealthCheckRequest, got: {len(raw)} bytes that are none",
        )
    return name

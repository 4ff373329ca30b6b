"""gRPC's health protocol, `grpc.health.v1`, for Kubernetes and load balancers."""

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

_LOOK_S = 0.25  # polling interval: a watching client delays shutdown by at most this
_NAMES = ("", messages.SERVICE)
_Status = health_pb2.HealthCheckResponse


def health_handler(service: Service) -> grpc.GenericRpcHandler:
    """Return the handler that reports readiness of the server and of its only service."""

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
        name, previous = await _service(raw, context), None
        while True:
            is_last, found = service.is_ending, status(name)
            found = _Status.SERVICE_UNKNOWN if found is None else found
            if found != previous:
                yield _Status(status=found)
            if is_last:
                return
            previous = found
            await asyncio.sleep(_LOOK_S)

    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    codec = {"response_serializer": _Status.SerializeToString}
    handlers = {"Check": unary(check, **codec), "Watch": stream(watch, **codec)}
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers)


async def _service(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """Return the service that a request names; aborts a call that does not parse."""
    try:
        name: str = health_pb2.HealthCheckRequest.FromString(raw).service
    except DecodeError:  # gRPC itself would answer UNKNOWN
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"message: expected a HealthCheckRequest, got: {len(raw)} other bytes",
        )
    return name

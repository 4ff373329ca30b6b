"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.serving.log import ID_HEADER, log_request, note
from tensoropt.serving.protocol import messages
from tensoropt.serving.protocol.calls import is_long_to_read, read_call, read_call_bytes, write_call
from tensoropt.serving.protocol.keys import KEY_HEADER, Keys
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.protocol.requests import Infer
from tensoropt.serving.rpc.health import health_handler
from tensoropt.serving.service import Service
from tensoropt.serving.side_process import SideProcess

__all__ = ["make_server"]

_IDLE_MS = 600_000  # a connection without calls is closed after this
_OPEN = ("ServerLive", "ServerReady")
_Method = Callable[[Any], Awaitable[Any]]
Count = Callable[[int], AbstractContextManager[None]]


def make_server(
    service: Service,
    max_body: int,
    count: Count,
    side: SideProcess,
    host: str,
    port: int,
    keys: Keys,
) -> tuple[grpc.aio.Server, int]:
    """Return a server that is bound but not started, and its port; raises `UserError`.

    A message has at most ``max_body`` bytes. ``count`` bounds the total of received messages;
    gRPC does not limit the total of incomplete messages. ``side`` parses long messages. Clients
    need one of ``keys``, except for probes.
    """
    options = [
        ("grpc.so_reuseport", 0),  # otherwise two servers silently share a port
        ("grpc.max_receive_message_length", max_body),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_connection_idle_ms", _IDLE_MS),
    ]
    server = grpc.aio.server(options=options)
    handlers = {
        name: _handler(name, method, count, Keys() if name in _OPEN else keys)
        for name, method in _methods(service, side).items()
    }
    handler = grpc.method_handlers_generic_handler(messages.SERVICE, handlers)
    server.add_generic_rpc_handlers((handler, health_handler(service)))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        return server, server.add_insecure_port(address)
    except RuntimeError:
        raise UserError(f"gRPC: cannot listen at {host}, port {port}") from None


def _handler(
    name: str, method: _Method, count: Count, keys: Keys
) -> grpc.RpcMethodHandler[Any, Any]:
    kind = getattr(messages, f"{name}Request")

    async def answered(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        metadata = dict(context.invocation_metadata() or ())
        given = metadata.get(ID_HEADER)
        with log_request(
            "grpc", name, context.peer(), given if isinstance(given, str) else None
        ) as line:
            context.set_trailing_metadata(((ID_HEADER, line.id),))
            try:
                await keys.admit(str(metadata.get(KEY_HEADER, "")))
                with count(len(raw)):
                    answer = await method(_parse(kind, raw))
            except Exception as error:
                note(error)
                refused = RefusedError(Reason.FAILED, one_line(error))
                if isinstance(error, RefusedError):
                    refused = error
                line.status = refused.reason.status
                return await context.abort(grpc.StatusCode[refused.reason.code], str(refused))
            line.status = 200
            return answer

    return grpc.unary_unary_rpc_method_handler(
        answered,  # takes bytes: gRPC answers its own deserializer's errors without a code
        response_serializer=lambda message: message.SerializeToString(),
    )


def _parse(kind: type[Message], raw: bytes) -> Message:
    try:
        return kind.FromString(raw)
    except DecodeError:
        name = kind.DESCRIPTOR.name
        raise RefusedError(
            Reason.INVALID, f"message: expected a {name}, got: {len(raw)} other bytes"
        ) from None


def _methods(service: Service, side: SideProcess) -> dict[str, _Method]:
    """Return the implementation of each method, by its name in the protocol."""

    async def live(_: Any) -> Any:
        return messages.ServerLiveResponse(live=True)

    async def ready(_: Any) -> Any:
        return messages.ServerReadyResponse(ready=service.is_ready)

    async def model_ready(request: Any) -> Any:
        is_ready = service.is_model_ready(request.name, request.version)
        return messages.ModelReadyResponse(ready=is_ready)

    async def metadata(_: Any) -> Any:
        return messages.ServerMetadataResponse(**service.metadata())

    async def model_metadata(request: Any) -> Any:
        return messages.ModelMetadataResponse(
            **service.model_metadata(request.name, request.version)
        )

    async def infer(request: Any) -> Any:
        async def read() -> Infer:
            if is_long_to_read(request):
                return await side.run(read_call_bytes, request.SerializeToString())
            return read_call(request)

        return write_call(
            await service.infer(request.model_name, request.model_version, read, "grpc")
        )

    methods = (live, ready, model_ready, metadata, model_metadata, infer, *_extensions(service))
    return dict(zip(messages.METHODS, methods, strict=True))


def _extensions(service: Service) -> tuple[_Method, _Method]:
    """Return the methods of Triton's extensions."""

    async def index(request: Any) -> Any:
        if request.repository_name:
            raise RefusedError(Reason.UNKNOWN, "repository_name: expected none, there is only one")
        return messages.RepositoryIndexResponse(models=service.index(ready_only=request.ready))

    async def statistics(request: Any) -> Any:
        return messages.ModelStatisticsResponse(**service.statistics(request.name, request.version))

    return index, statistics

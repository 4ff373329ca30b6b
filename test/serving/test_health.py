"""gRPC's protocol of health, asked by its own client."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from fake_server import Server, fake_server
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
SERVICE = "inference.GRPCInferenceService"


@pytest.fixture
def server() -> Iterator[Server]:
    with fake_server() as found:
        yield found


@pytest.fixture
def stub(server: Server) -> Iterator[health_pb2_grpc.HealthStub]:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        yield health_pb2_grpc.HealthStub(channel)


def _asked(name: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=name)


def test_one_look(stub: health_pb2_grpc.HealthStub) -> None:
    for name in ("", SERVICE):
        assert stub.Check(_asked(name), timeout=20).status == SERVING
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(_asked("other"), timeout=20)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert next(stub.Watch(_asked("other"), timeout=20)).status == UNKNOWN


def test_what_is_no_message(server: Server) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        for made in (channel.unary_unary, channel.unary_stream):
            method = "Check" if made == channel.unary_unary else "Watch"
            call: Any = made(f"/grpc.health.v1.Health/{method}")
            with pytest.raises(grpc.RpcError) as caught:
                [*call(b"\xff", timeout=20)]
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            expected = "message: expected a HealthCheckRequest, got: 1 other bytes"
            assert caught.value.details() == expected


def test_who_watches_hears_of_the_end_and_does_not_hold_it_up(
    server: Server, stub: health_pb2_grpc.HealthStub
) -> None:
    gone = stub.Watch(_asked(""), timeout=60)
    assert next(gone).status == SERVING
    watching = [stub.Watch(_asked(name), timeout=60) for name in ("", SERVICE, "other")]
    firsts = [next(one).status for one in watching]
    assert firsts == [SERVING, SERVING, UNKNOWN]
    gone.cancel()
    begun = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    rest = [[one.status for one in stream] for stream in watching]
    assert rest == [[NOT_SERVING], [NOT_SERVING], []]
    assert server.ended() == (0, "")
    assert time.monotonic() - begun < 20  # of --grace 30

"""Clients who are slow, endless or rude: the server lets go of them, and stays up."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from pathlib import Path

import grpc
import pytest
from fake_server import fake_server
from fake_sessions import FakeSession, served
from uvicorn.server import ServerState

from tensoropt.runtime.support.http_server import listen, server_config
from tensoropt.serving.http.body import Bodies
from tensoropt.serving.http.connection import Connection
from tensoropt.serving.protocol import messages
from tensoropt.serving.protocol.keys import Keys
from tensoropt.serving.rpc.servicer import make_server

_INFER = b"POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def server():
    with fake_server("--patience", "0.5") as found:
        yield found


@pytest.fixture
def client(server):
    with socket.create_connection(("127.0.0.1", server.http), timeout=60) as found:
        yield found
    with socket.create_connection(("127.0.0.1", server.http), timeout=60) as again:
        again.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b'{"ready":true}' in _all(again)


def _all(client):
    """Return what comes until the connection is closed, or reset."""
    found = b""
    try:
        while piece := client.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


def _status(answer):
    return int(answer.split(b" ", 2)[1]), json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]


def test_a_stream_to_a_client_of_http_1_0_ends_with_the_connection(tmp_path: Path) -> None:
    """It has no chunks, and comes in parts; other answers have a length."""
    body = json.dumps({"model": "m", "prompt": "abc", "max_tokens": 3, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.%d\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    with fake_server("--models", "all", "--folder", str(tmp_path)) as server:
        answers = []
        for minor in (0, 1):
            with socket.create_connection(("127.0.0.1", server.http), timeout=60) as client:
                client.sendall(head % (minor, len(body)) + body)
                answers.append(_all(client))
        old, new = (answer.partition(b"\r\n\r\n") for answer in answers)
        assert b"transfer-encoding" not in old[0]
        assert b"connection: close" in old[0]
        lines = old[2].decode().split("\n\n")
        assert [line[:5] for line in lines] == ["data:"] * 4 + [""]
        assert lines[-2] == "data: [DONE]"
        assert b"transfer-encoding: chunked" in new[0]
        with socket.create_connection(("127.0.0.1", server.http), timeout=60) as client:
            client.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
            kind, _, found = _all(client).partition(b"\r\n\r\n")
        assert f"content-length: {len(found)}".encode() in kind
        assert json.loads(found)["object"] == "list"


def _memory(server):
    """Return how many bytes the server has had at most."""
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if "VmHWM" in line)


def test_ten_gigabytes_are_refused_before_they_come(client):
    client.sendall(_INFER + b"Content-Length: 10000000000\r\n\r\n" + b"x" * 1000)
    status, text = _status(_all(client))
    assert status == 413
    assert text == "body: expected at most 1048576 bytes (--max-body), got: 10000000000"


def test_a_body_without_end_is_not_kept(server, client):
    before = _memory(server)
    client.sendall(_INFER + b"Transfer-Encoding: chunked\r\n\r\n")
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    sent = 0
    try:
        while sent < 10_000:
            client.sendall(piece)
            sent += 1
    except (ConnectionResetError, BrokenPipeError):
        pass
    assert sent < 10_000
    assert b"413" in _all(client)[:20] or sent
    assert _memory(server) - before < 64 << 20


@pytest.mark.parametrize(
    "begun",
    [b"", b"POST /v2/mod", _INFER, b"\r\n"],
    ids=["nothing", "a target", "a header", "an empty line"],
)
def test_slow_headers(client, begun):
    client.sendall(begun)
    _all(client)  # comes to an end


def test_slow_headers_of_a_second_request(client):
    client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
    client.sendall(b"\r\n")
    _all(client)


def test_a_slow_body(client):
    client.sendall(_INFER + b"Content-Length: 100\r\n\r\n{")
    assert _status(_all(client)) == (408, "body: expected within 0.5 s")


def test_answers_that_are_not_read(server, client):
    client.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
    with_client = _sockets(server)
    client.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    while _sockets(server) >= with_client:
        time.sleep(0.05)
    assert len(_all(client)) < 32 << 20


def _sockets(server):
    """Return how many sockets the server has; those of earlier clients may be closed meanwhile."""
    found = 0
    for file in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(file.readlink()).startswith("socket:")
    return found


def test_requests_without_end(client):
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        while True:
            client.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)


def test_headers_without_end(client):
    client.sendall(_INFER)
    line = b"X-More: " + b"x" * 1000 + b"\r\n"
    sent = 0
    try:
        while sent < 100_000:
            client.sendall(line)
            sent += 1
    except (ConnectionResetError, BrokenPipeError):
        pass
    assert sent < 100_000


def test_what_is_no_http(client):
    client.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    assert _all(client).startswith(b"HTTP/1.1 400")


def test_a_client_that_goes_away(client):
    client.sendall(_INFER + b"Content-Length: 100\r\n\r\n{")
    client.close()


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"+5", b"9" * 5000])
def test_lengths_that_are_none(client, length):
    client.sendall(_INFER + b"Content-Length: " + length + b"\r\n\r\n")
    assert _all(client).split(b" ")[1] in (b"400", b"413")


@pytest.fixture(scope="module")
def roomy():
    """A server of bodies of 32 MiB, of which there may be 48 MiB together."""
    with fake_server("--max-body", str(32 << 20), "--max-bodies", str(48 << 20)) as found:
        yield found


def test_a_header_without_end_is_not_kept(roomy):
    before, sent = _memory(roomy), 0
    with socket.create_connection(("127.0.0.1", roomy.http), 60) as client:
        client.sendall(_INFER + b"X-More: ")
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while sent < 24:
                client.sendall(b"x" * (1 << 20))
                sent += 1
    assert sent < 24
    assert _memory(roomy) - before < 8 << 20


def test_unfinished_bodies_are_bounded_together(roomy):
    before, size = _memory(roomy), 16 << 20
    head = _INFER + b"Content-Length: %d\r\n\r\n" % (size + 1)
    with contextlib.ExitStack() as stack:
        refused = 0
        for _ in range(12):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", roomy.http), 60))
            try:
                client.sendall(head + bytes(size))
                client.settimeout(0.5)
                refused += client.recv(1 << 10).startswith(b"HTTP/1.1 503")
            except TimeoutError:
                pass  # it is held
            except OSError:
                refused += 1
        assert refused >= 9
        assert _memory(roomy) - before < 96 << 20
        assert _infer(roomy, [1.0, 2.0, 3.0])["outputs"][0]["data"] == [2.0, 4.0, 6.0]
    _infer(roomy, [0.5] * (1 << 20), status=400)  # there is room again


def test_a_long_header_ends_its_connection():
    async def check():
        config = server_config(lambda: None, Connection, 1, loop="none")
        config.load()
        make = lambda: Connection(config, ServerState(), {})  # noqa: E731
        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(_INFER + b"X-More: " + b"x" * (1 << 17))
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        server.close()

    asyncio.run(check())


def test_answers_are_sent_without_delay():
    with (
        listen("HTTP", "127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_messages_of_grpc_are_bounded_together():
    async def refusal(port, size):
        given = messages.ModelInferRequest(model_name="double", id="x" * size)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            with pytest.raises(grpc.RpcError) as caught:
                await call(given.SerializeToString(), timeout=60)
        return caught.value.code(), caught.value.details()

    async def check():
        bodies = Bodies(1 << 20, 60_000)
        async with served(FakeSession()) as service:
            limits = bodies.most, bodies.count, bodies.side
            server, port = make_server(service, *limits, "127.0.0.1", 0, Keys())
            await server.start()
            for _ in range(3):  # each is forgotten after its answer
                found = await refusal(port, 100_000)
                assert found == (grpc.StatusCode.INVALID_ARGUMENT, "input 'x' is missing")
            code, why = await refusal(port, 200_000)
            await server.stop(None)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert why.startswith(
            "body: the requests in progress have 0 bytes, expected at most 60000 "
        )

    asyncio.run(check())


def _body(values):
    entry = {"name": "x", "datatype": "FP32", "shape": [1, len(values)], "data": values}
    return json.dumps({"inputs": [entry]}).encode()


def _infer(server, values, status=200):
    """Return the answer to one sample."""
    return _post(server, _body(values), status)


def _post(server, body, status):
    with contextlib.closing(_client(server)) as client:
        client.request("POST", "/v2/models/double/infer", body)
        answer = client.getresponse()
        found = json.loads(answer.read())
    assert answer.status == status, found
    return found


def _client(server):
    return http.client.HTTPConnection("127.0.0.1", server.http, timeout=60)


def test_long_json_does_not_keep_others_waiting(roomy):
    """A server that parsed 30 MiB on its event loop would not answer until it had."""
    waits, done = [], threading.Event()

    def ask():
        while not done.is_set():
            begun = time.monotonic()
            with contextlib.closing(_client(roomy)) as client:
                client.request("GET", "/v2/health/ready")
                assert client.getresponse().status == 200
            waits.append(time.monotonic() - begun)
            time.sleep(0.01)

    _infer(roomy, [0.5] * (1 << 16), status=400)  # the process is there
    long = _body([0.25] * (5 << 20))
    asking = threading.Thread(target=ask)
    asking.start()
    begun = time.monotonic()
    _post(roomy, long, status=400)
    took = time.monotonic() - begun
    done.set()
    asking.join()
    assert max(waits) < took / 2

"""The log of a server: a line per request, its id, and the cause of what fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc
from fake_server import Server, fake_server
from fake_sessions import DEADLY

from tensoropt.serving.protocol import messages

_INFER = "/v2/models/double/infer"


@pytest.fixture(scope="module", params=["text", "json"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Server, bool]]:
    with fake_server("--log-format", request.param) as found:
        yield found, request.param == "json"


def _body(value: float) -> dict[str, Any]:
    given = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [value] * 3}
    return {"inputs": [given]}


def _next(server: Server) -> str:
    assert server.process.stderr is not None
    return server.process.stderr.readline().removesuffix("\n")


def _request(server: Server) -> str:
    """Return the next line of a request; lines of ranks that ended may come before it."""
    while "model 'double': " in (line := _next(server)):
        pass
    return line


@pytest.mark.parametrize(
    ("method", "path", "json_", "status", "cause"),
    [
        ("POST", _INFER, _body(1.0), 200, None),
        ("POST", _INFER, {}, 400, "the request: expected a list of objects as 'inputs'"),
        ("POST", _INFER, _body(DEADLY), 503, "rank 1 was ended by SIGKILL"),
        ("GET", "/broken", None, 500, "ValueError: broken in two lines ("),
        ("GET", "/no%0Asuch", None, 404, None),
    ],
)
def test_a_request_over_http(
    server: tuple[Server, bool], method: str, path: str, json_: Any, status: int, cause: str | None
) -> None:
    found, is_json = server
    url = f"http://127.0.0.1:{found.http}"
    for probe in ("/v2/health/ready", "/v2/models/double/ready", "/metrics"):
        httpx.get(url + probe)  # these have no lines
    headers = {"X-Request-Id": "mine-7"}
    answer = httpx.request(method, url + path, json=json_, headers=headers, timeout=60)
    assert (answer.status_code, answer.headers.get_list("x-request-id")) == (status, ["mine-7"])
    line = _request(found)
    if is_json:
        _check(json.loads(line), method, path, status, cause)
    else:
        shown = path.replace("%0A", "\\n")
        assert f" http {method} {shown} {status} " in line
        assert " ms mine-7" in line
        assert cause is None or f": {cause}" in line


def _check(said: dict[str, Any], method: str, path: str, status: int, cause: str | None) -> None:
    assert said["request"] == f"{method} {path}".replace("%0A", "\n")
    assert (said["status"], said["protocol"], said["request_id"]) == (status, "http", "mine-7")
    assert said["level"] == ("error" if status >= 500 else "info")
    assert 0 < said["duration_ms"] < 60e3
    assert said["client"].startswith("127.0.0.1:")
    assert said["time"].endswith("Z")
    assert said.get("cause", "").startswith(cause or "")
    assert ("cause" in said) == (cause is not None)
    assert ("test/serving/fake_server.py:" in said.get("cause", "")) == (status == 500)


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "\x00"])
def test_ids_that_no_header_or_log_should_have(server: tuple[Server, bool], given: str) -> None:
    found, _ = server
    metadata = [("x-request-id", given)] if given.isprintable() else []
    with grpc.insecure_channel(f"127.0.0.1:{found.grpc}") as channel:
        call = channel.unary_unary(f"/{messages.SERVICE}/ServerMetadata")
        _, done = call.with_call(b"", metadata=metadata)
    ids = [value for name, value in done.trailing_metadata() if name == "x-request-id"]
    assert [len(one) for one in ids] == [32]
    assert ids[0] in _request(found)


def test_a_request_over_grpc(server: tuple[Server, bool]) -> None:
    found, is_json = server
    given = tritonclient.grpc.InferInput("x", [1, 3], "FP32")
    given.set_data_from_numpy(np.full((1, 3), DEADLY, np.float32))
    with (
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{found.grpc}") as client,
        pytest.raises(tritonclient.grpc.InferenceServerException),
    ):
        client.infer("double", [given], headers={"x-request-id": "mine-8"})
    line = _request(found)
    if is_json:
        said = json.loads(line)
        assert (said["request"], said["status"], said["level"]) == ("ModelInfer", 503, "error")
        assert (said["request_id"], said["cause"]) == ("mine-8", "rank 1 was ended by SIGKILL")
    else:
        assert " grpc ModelInfer 503 " in line
        assert line.endswith(" ms mine-8: rank 1 was ended by SIGKILL")


def test_lines_beside_those_of_requests(server: tuple[Server, bool]) -> None:
    found, is_json = server
    httpx.post(f"http://127.0.0.1:{found.http}{_INFER}", json=_body(DEADLY), timeout=60)
    restart = "model 'double': ranks have ended and are started again in "
    while restart not in (line := _next(found)):
        pass
    if is_json:
        said = json.loads(line)
        assert said["message"].startswith(restart)
        assert said["level"] == "warning"
    else:
        assert f"Z {restart}" in line

"""The Open Inference Protocol as others speak it: by tritonclient, over HTTP and gRPC."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from fake_server import fake_server
from fake_sessions import BAD, DEADLY, SLOW
from tritonclient.utils import InferenceServerException

PROTOCOLS = ("http", "grpc")


@pytest.fixture(scope="module")
def server():
    with fake_server() as found:
        yield found


@pytest.fixture(scope="module")
def clients(server):
    found = {
        "http": tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http}"),
        "grpc": tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}"),
    }
    yield found
    for client in found.values():
        client.close()


def _input(protocol, x, datatype="FP32", name="x", **how):
    module = getattr(tritonclient, protocol)
    given = module.InferInput(name, list(x.shape), datatype)
    given.set_data_from_numpy(x, **how)
    return given


def _x(value=1.0, samples=1):
    return np.full((samples, 3), value, np.float32)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_health_and_metadata(clients, protocol):
    client = clients[protocol]
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double")
    assert client.is_model_ready("double", "1")
    as_dict = {"as_json": True} if protocol == "grpc" else {}
    assert client.get_server_metadata(**as_dict)["name"] == "tensoropt"
    found = client.get_model_metadata("double", **as_dict)
    sizes = ["-1", "3"] if protocol == "grpc" else [-1, 3]
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": sizes}]
    assert found["outputs"] == [{"name": "y", "datatype": "FP32", "shape": sizes}]
    assert found["versions"] == ["1"]


@pytest.mark.parametrize("samples", [1, 3, 4])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_answers(clients, protocol, samples):
    x = _x(samples=samples)
    found = clients[protocol].infer("double", [_input(protocol, x)], request_id="7")
    np.testing.assert_array_equal(found.as_numpy("y"), 2 * x)
    response = found.get_response()
    assert (response["id"] if protocol == "http" else response.id) == "7"


def test_answers_in_json(clients):
    output = tritonclient.http.InferRequestedOutput("y", binary_data=False)
    given = _input("http", _x(), binary_data=False)
    found = clients["http"].infer("double", [given], outputs=[output])
    np.testing.assert_array_equal(found.as_numpy("y"), 2 * _x())
    assert found.get_response()["outputs"][0]["data"] == [2.0, 2.0, 2.0]


def test_typed_contents_of_grpc(server):
    """What clients send that were made from the protocol's definition alone."""
    import grpc

    from tensoropt.serving.protocol import messages

    request = messages.ModelInferRequest(model_name="double")
    given = request.inputs.add(name="x", datatype="FP32", shape=[1, 3])
    given.contents.fp32_contents.extend([1, 2, 3])
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        call = channel.unary_unary(
            f"/{messages.SERVICE}/ModelInfer",
            lambda message: message.SerializeToString(),
            messages.ModelInferResponse.FromString,
        )
        response = call(request)
        np.testing.assert_array_equal(
            np.frombuffer(response.raw_output_contents[0], np.float32), [2, 4, 6]
        )
        given.contents.int_contents.append(1)
        with pytest.raises(grpc.RpcError) as caught:
            call(request)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "input 'x': expected fp32_contents for FP32, got: int_contents"


@pytest.mark.parametrize(
    ("x", "datatype", "status", "text"),
    [
        (_x(samples=5), "FP32", "INVALID_ARGUMENT", "samples: expected 1 to 4, got: 5"),
        (np.ones((1, 4), np.float32), "FP32", "INVALID_ARGUMENT", "expected shape [4, 3]"),
        (np.ones((1, 3)), "FP64", "INVALID_ARGUMENT", "expected datatype FP32, got: FP64"),
        (np.ones((1, 3), object), "BYTES", "INVALID_ARGUMENT", "expected datatype FP32"),
        (_x(BAD), "FP32", "INVALID_ARGUMENT", "index out of bounds"),
        (_x(DEADLY), "FP32", "UNAVAILABLE", "rank 1 was ended by SIGKILL"),
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_mistakes_are_one_line_and_the_server_goes_on(clients, protocol, x, datatype, status, text):
    with pytest.raises(InferenceServerException) as caught:
        clients[protocol].infer("double", [_input(protocol, x, datatype)])
    assert text in caught.value.message()
    statuses = {"INVALID_ARGUMENT": "400", "UNAVAILABLE": "503"}
    wanted = f"StatusCode.{status}" if protocol == "grpc" else statuses[status]
    assert caught.value.status() == wanted
    found = clients[protocol].infer("double", [_input(protocol, _x())])
    np.testing.assert_array_equal(found.as_numpy("y"), 2 * _x())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_unknown_names(clients, protocol):
    status = "StatusCode.NOT_FOUND" if protocol == "grpc" else "404"
    with pytest.raises(InferenceServerException, match="model 'duble': not served here") as caught:
        clients[protocol].infer("duble", [_input(protocol, _x())])
    assert caught.value.status() == status
    with pytest.raises(InferenceServerException, match="expected version 1, got: '3'") as caught:
        clients[protocol].get_model_metadata("double", "3")
    assert caught.value.status() == status


def _asked(server, path, data=None, **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{server.http}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize(
    ("path", "data", "headers", "status", "text"),
    [
        ("/v3", None, {}, 404, "GET /v3: unknown, expected another path, such as /v2"),
        ("/v2/models/double/infer", None, {}, 405, "GET /v2/models/double/infer: unknown, expect"),
        ("/v2/models/double/infer", b"{", {}, 400, "body: expected JSON"),
        (
            "/v2/models/double/infer",
            b"",
            {"Content-Encoding": "gzip"},
            415,
            "Content-Encoding: expected none, got: 'gzip'",
        ),
    ],
)
def test_other_mistakes_of_http(server, path, data, headers, status, text):
    found, body = _asked(server, path, data, **headers)
    assert (found, list(json.loads(body))) == (status, ["error"])
    assert text in json.loads(body)["error"]


@pytest.mark.parametrize("name", ["ModelInfer", "ModelReady", "ModelMetadata"])
@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe"])
def test_messages_that_do_not_parse(server, name, raw):
    """A tag without a value, a length past the end, and a name that is not UTF-8."""
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        call = channel.unary_unary(f"/inference.GRPCInferenceService/{name}")
        with pytest.raises(grpc.RpcError) as caught:
            call(raw)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith(f"message: expected a {name}Request, got: ")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_long_names(clients, protocol):
    """A line of error is a header in gRPC, and headers have an end."""
    given = _input(protocol, _x(), name="n" * 10**5)
    with pytest.raises(InferenceServerException) as caught:
        clients[protocol].infer("double", [given])
    assert "the model has none" in caught.value.message() or "input 'nnn" in caught.value.message()


@pytest.mark.parametrize("field", ["name", "datatype"])
def test_lone_surrogates(server, field):
    given = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3], field: "\ud800"}
    body = json.dumps({"inputs": [given]}).encode()
    status, body = _asked(server, "/v2/models/double/infer", body)
    assert status == 400
    assert r"'\ud800'" in json.loads(body)["error"]


def test_bodies_that_are_too_large_for_grpc(clients):
    x = np.zeros((1 << 19, 3), np.float32)
    with pytest.raises(InferenceServerException) as caught:
        clients["grpc"].infer("double", [_input("grpc", x)])
    assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_index_of_models(clients, protocol):
    as_dict = {"as_json": True} if protocol == "grpc" else {}
    found = clients[protocol].get_model_repository_index(**as_dict)
    found = found["models"] if protocol == "grpc" else found
    entry = {"name": "double", "version": "1", "state": "READY", "reason": ""}
    assert found == ([entry] if protocol == "http" else [{k: v for k, v in entry.items() if v}])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["", "double"])
def test_statistics(clients, protocol, name):
    client = clients[protocol]

    def asked():
        as_dict = {"as_json": True} if protocol == "grpc" else {}
        (one,) = client.get_inference_statistics(name, **as_dict)["model_stats"]
        return one

    def count(found, part):
        return int(found["inference_stats"][part].get("count", 0))

    client.infer("double", [_input(protocol, _x())])
    before = asked()
    client.infer("double", [_input(protocol, _x(samples=3))])
    with pytest.raises(InferenceServerException):
        client.infer("double", [_input(protocol, _x(samples=5))])
    after = asked()
    assert (after["name"], after["version"]) == ("double", "1")
    for field, more in (("inference_count", 3), ("execution_count", 1)):
        assert int(after[field]) - int(before[field]) == more
    for part, more in (("success", 1), ("fail", 1), ("queue", 1), ("compute_infer", 1)):
        assert count(after, part) - count(before, part) == more
        assert int(after["inference_stats"][part]["ns"]) > 0
    assert abs(int(after["last_inference"]) / 1e3 - time.time()) < 60


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_statistics_of_a_model_that_is_not_there(clients, protocol):
    with pytest.raises(InferenceServerException, match="model 'duble': not served here"):
        clients[protocol].get_inference_statistics("duble")


def test_metrics_are_prometheus_text(server, clients):
    from prometheus_client.parser import text_string_to_metric_families

    clients["http"].infer("double", [_input("http", _x())])
    status, text = _asked(server, "/metrics")
    assert status == 200
    found = {family.name for family in text_string_to_metric_families(text.decode())}
    assert found >= {
        "tensoropt_requests",
        "tensoropt_request_seconds",
        "tensoropt_step_seconds",
        "tensoropt_batch_samples",
        "tensoropt_queue_requests",
        "tensoropt_rank_restarts",
        "tensoropt_ready",
    }


def _slow_over_http(server):
    given = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [SLOW] * 3}
    status, body = _asked(
        server, "/v2/models/double/infer", json.dumps({"inputs": [given]}).encode()
    )
    assert status == 200
    return json.loads(body)["outputs"][0]["data"][0]


def _slow_over_grpc(server):
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        return client.infer("double", [_input("grpc", _x(SLOW))]).as_numpy("y")[0, 0]


@pytest.mark.parametrize("ask", [_slow_over_http, _slow_over_grpc])
def test_what_is_under_way_is_answered_at_the_end(ask):
    with fake_server() as server, ThreadPoolExecutor(1) as thread:
        answer = thread.submit(ask, server)
        assert server.process.stderr.readline() == "a slow run\n"
        server.process.send_signal(signal.SIGTERM)
        assert answer.result(60) == 2 * SLOW
        assert server.ended() == (0, "")

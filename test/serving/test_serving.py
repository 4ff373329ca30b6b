"""tensoropt-serve with ranks: answers, a rank that is killed, idle ranks, and the end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from fake_server import started
from handmade import Perceptron
from tritonclient.utils import InferenceServerException

_COMMAND = (
    *(sys.executable, "-c"),
    "import sys; from tensoropt.serving.cli.serve import main; sys.exit(main())",
)


@pytest.fixture(scope="module")
def perceptrons(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    found = {"fixed": Perceptron(folder, 4), "free": Perceptron(folder, "n")}
    for name, perceptron in found.items():
        perceptron.plan(folder / name)
    return folder, found


def _serving(folder, *flags):
    plans = [str(folder / "fixed"), f"loose={folder / 'free'}"]
    ports = ["--port", "0", "--grpc-port", "0"]
    return started([*_COMMAND, *plans, *ports, "--max-batch", "6", "--threads", "1", *flags])


@pytest.fixture(scope="module")
def server(perceptrons):
    with _serving(perceptrons[0]) as found:
        yield found


@pytest.fixture(scope="module")
def http(server):
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http}") as found:
        yield found


@pytest.fixture(scope="module")
def grpc(server):
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as found:
        yield found


def _answer(client, model, x):
    module = sys.modules[type(client).__module__.rsplit(".", 1)[0]]
    given = module.InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    return client.infer(model, [given]).as_numpy("y")


def _expected(perceptron, x):
    return np.maximum(x @ perceptron.w1, 0) @ perceptron.w2


@pytest.mark.quick
@pytest.mark.parametrize("name", ["http", "grpc"])
@pytest.mark.parametrize(
    ("model", "plan", "samples"),
    [("fixed", "fixed", 3), ("fixed", "fixed", 4), ("loose", "free", 6)],
)
def test_answers(request, perceptrons, name, model, plan, samples):
    x = np.random.default_rng(samples).random((samples, 6), np.float32)
    found = _answer(request.getfixturevalue(name), model, x)
    np.testing.assert_allclose(found, _expected(perceptrons[1][plan], x), rtol=1e-5)


def test_too_many_samples_for_a_run(http):
    with pytest.raises(InferenceServerException, match="samples: expected 1 to 6, got: 7"):
        _answer(http, "loose", np.zeros((7, 6), np.float32))


def test_idle_ranks_sleep(server):
    ranks = _ranks(server)
    assert len(ranks) == 4
    before = [_used_s(rank) for rank in ranks]
    time.sleep(1.0)
    assert max(_used_s(rank) - used for rank, used in zip(ranks, before, strict=True)) < 0.1


def _ranks(server):
    """Return the processes of ranks that the server has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            line = (folder / "cmdline").read_bytes()
            if parent == server.process.pid and b"launch.rank" in line:
                found.append(int(folder.name))
    return sorted(found)


def _used_s(process):
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_rank_that_is_killed_comes_back_and_all_end(perceptrons):
    with (
        _serving(perceptrons[0]) as server,
        tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http}") as http,
    ):
        _kill_a_rank(server, http, perceptrons[1])
        _end(server)


def _kill_a_rank(server, http, perceptrons):
    x = np.random.default_rng(9).random((2, 6), np.float32)
    first = _ranks(server)
    os.kill(first[0], signal.SIGKILL)
    for model, plan in (("fixed", "fixed"), ("loose", "free")):
        found = _patient_answer(http, model, x)
        np.testing.assert_allclose(found, _expected(perceptrons[plan], x), rtol=1e-5)
    while not http.is_server_ready():
        time.sleep(0.05)
    now = _ranks(server)
    assert len(now) == 4
    assert len(set(now) & set(first)) == 2, "the ranks of the other model are those that were"


def _patient_answer(client, model, x):
    """Return an answer; the first request may meet the death of a rank, the next one may not."""
    try:
        return _answer(client, model, x)
    except InferenceServerException as error:
        assert error.status() == "503"
        return _answer(client, model, x)


def _end(server):
    ranks = _ranks(server)
    server.process.send_signal(signal.SIGTERM)
    status, said = server.ended()
    assert status == 0
    assert "ranks have ended and are started again in 0 s" in said
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)


def test_a_rank_that_hangs_is_noticed_and_started_again(perceptrons):
    with (
        _serving(perceptrons[0], "--timeout", "1", "--stall", "3") as server,
        tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http}") as http,
    ):
        x = np.random.default_rng(9).random((4, 6), np.float32)
        _answer(http, "fixed", x)
        stopped = _ranks(server)[0]
        os.kill(stopped, signal.SIGSTOP)
        models = [name for name in ("fixed", "loose") if _is_late(http, name, x)]
        assert len(models) == 1
        assert not http.is_server_ready()
        assert not http.is_model_ready(*models)
        until = time.monotonic() + 60
        while not http.is_server_ready():
            assert time.monotonic() < until
            time.sleep(0.05)
        plan = perceptrons[1]["fixed" if models == ["fixed"] else "free"]
        np.testing.assert_allclose(_answer(http, *models, x), _expected(plan, x), rtol=1e-5)
        assert not Path(f"/proc/{stopped}").exists()


def _is_late(client, model, x):
    """Say whether a model has no answer in time; ranks do not say of which model they are."""
    try:
        _answer(client, model, x)
    except InferenceServerException as error:
        assert error.status() == "504"
        return True
    return False


def test_a_server_ends_though_its_ranks_hang(perceptrons):
    with (
        _serving(perceptrons[0], "--timeout", "60", "--grace", "1") as server,
        socket.create_connection(("127.0.0.1", server.http)) as client,
    ):
        ranks = _ranks(server)
        for rank in ranks:
            os.kill(rank, signal.SIGSTOP)
        entry = {"name": "x", "datatype": "FP32", "shape": [4, 6], "data": [0.0] * 24}
        body = json.dumps({"inputs": [entry]}).encode()
        head = f"POST /v2/models/fixed/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
        client.sendall(head.encode() + b"\r\n\r\n" + body)
        time.sleep(0.5)  # until the ranks should be at it
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.ended()[0] == 0
        assert time.monotonic() - begun < 10
        assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)

"""A plan that is replaced in its folder while it is served: by ranks that die, and on SIGHUP."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time

import numpy as np
import pytest
import tritonclient.http
from fake_server import started
from handmade import Perceptron
from test_serving import _COMMAND, _answer, _expected, _ranks
from waiting import wait_until

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.rank_options import SessionOptions
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.opening import Opener
from tensoropt.serving.options import ServingOptions, TextLimits

PATIENCE_S = 60.0
X = np.random.default_rng(3).random((3, 6), np.float32)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the plan ``m`` and ``other``, which gives twice its answers."""
    Perceptron(tmp_path, 4).plan(tmp_path / "m")
    other = Perceptron(tmp_path, 4)
    other.w2 *= 2
    other.plan(tmp_path / "other")
    return tmp_path


def _serving(folder):
    return started([*_COMMAND, str(folder / "m"), "--port", "0", "--no-grpc", "--threads", "1"])


def _replace(folder):
    shutil.rmtree(folder / "m")
    (folder / "other").rename(folder / "m")


def _client(server):
    return tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http}", concurrency=2)


def test_a_replaced_plan_does_not_answer_for_the_old_one(folder):
    old = _expected(Perceptron(folder, 4), X)
    with _serving(folder) as server, _client(server) as client:
        np.testing.assert_allclose(_answer(client, "m", X), old, rtol=1e-5)
        _replace(folder)
        np.testing.assert_allclose(_answer(client, "m", X), old, rtol=1e-5)
        os.kill(_ranks(server)[0], signal.SIGKILL)
        wait_until(lambda: not client.is_server_ready(), PATIENCE_S)
        time.sleep(2.0)  # it would be there again by now
        assert not client.is_server_ready()
        server.process.send_signal(signal.SIGHUP)
        wait_until(client.is_server_ready, PATIENCE_S)
        np.testing.assert_allclose(_answer(client, "m", X), 2 * old, rtol=1e-5)
        server.process.send_signal(signal.SIGTERM)
        status, said = server.ended()
        assert status == 0
        assert "m: another plan has replaced this one, expected sha256 " in said
        assert "model 'm': the new plan answers" in said


def _line_with(server, text):
    """Return the next line of the log with ``text``; other lines are lost."""
    return next(line for line in server.process.stderr if text in line)


def test_a_reload_refuses_no_request(folder):
    old = _expected(Perceptron(folder, 4), X)
    found, over = [], threading.Event()

    def ask(server):
        with _client(server) as client:  # one for each thread
            while not over.is_set():
                found.append(_answer(client, "m", X)[0, 0] / old[0, 0])

    with _serving(folder) as server:
        first = _ranks(server)
        asking = threading.Thread(target=ask, args=(server,))
        asking.start()
        server.process.send_signal(signal.SIGHUP)
        _line_with(server, "the plan is the same")
        _replace(folder)
        (folder / "m" / "rank1.onnx").rename(folder / "away")
        server.process.send_signal(signal.SIGHUP)  # this plan is refused
        refused = _line_with(server, "model 'm': the old plan stays: ")
        assert "rank1.onnx is missing" in refused
        asked = len(found)
        wait_until(lambda: len(found) > asked + 1, PATIENCE_S)  # also after it was refused
        (folder / "away").rename(folder / "m" / "rank1.onnx")
        assert _ranks(server) == first
        before = len(found)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not set(first) & set(_ranks(server)), PATIENCE_S)
        over.set()
        asking.join()
        with _client(server) as client:
            np.testing.assert_allclose(_answer(client, "m", X), 2 * old, rtol=1e-5)
        server.process.send_signal(signal.SIGTERM)
        assert server.ended()[0] == 0
    assert {*np.round(found[:before], 3)} == {1.0}
    assert {*np.round(found, 3)} <= {1.0, 2.0}


def test_a_plan_of_another_kind_is_refused(folder):
    session, limits = SessionOptions(), TextLimits()
    opener = Opener({"m": folder / "m"}, {}, session, ServingOptions(), limits, Metrics())
    assert opener.reopen("m") is None
    opener._decoders = {"m": None}.keys()
    _replace(folder)
    with pytest.raises(UserError, match="expected a plan with caches as before, got: one without"):
        opener.reopen("m")

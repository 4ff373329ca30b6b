"""API keys, over HTTP and gRPC, and the log without them."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import tritonclient.grpc as triton
from fake_server import Server, fake_server
from openai_server import client_of
from tritonclient.utils import InferenceServerException

from tensoropt.runtime.support.errors import UserError
from tensoropt.serving.protocol import keys as protocol_keys
from tensoropt.serving.protocol.keys import Keys, read_keys
from tensoropt.serving.protocol.refusals import RefusedError

GOOD, OTHER, BAD = "sk-good-4711", "sk-other-0815", "sk-bad-1234"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("keys")
    keys = folder / "keys"
    keys.write_text(f"{GOOD}\n\n{OTHER}\n")
    arguments = "--models", "all", "--api-key-file", str(keys), "--log-format", "json"
    with fake_server(*arguments, "--folder", str(folder)) as found:
        yield found
        found.process.send_signal(signal.SIGTERM)
        status, log = found.ended()
        assert status == 0
        assert '"status": 401' in log
        assert not any(key in log for key in (GOOD, OTHER, BAD))


def test_texts(server: Server) -> None:
    how = {"model": "m", "prompt": "ab", "max_tokens": 2}
    for key in (GOOD, OTHER):
        with client_of(server, key) as client:
            assert client.completions.create(**how).usage.completion_tokens == 2  # type: ignore[call-overload]
    with client_of(server, BAD) as client:
        for ask in (lambda: client.completions.create(**how), client.models.list):  # type: ignore[call-overload]
            with pytest.raises(openai.AuthenticationError, match="API key: expected the") as caught:
                ask()
            assert (caught.value.code, caught.value.type) == (
                "invalid_api_key",
                "invalid_request_error",
            )
            assert caught.value.response.headers["www-authenticate"] == "Bearer"
            assert caught.value.request_id


def test_tensors_and_probes(server: Server) -> None:
    good = {"authorization": f"Bearer {GOOD}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{server.http}") as http:
        assert http.get("/v2/models/double", headers=good).status_code == 200
        refused = http.get("/v2/models/double", headers={"authorization": f"Basic {GOOD}"})
        assert refused.status_code == 401
        assert refused.json()["error"].startswith("API key: expected the header")
        open_paths = "/v2/health/live", "/v2/health/ready", "/metrics"
        assert [http.get(path).status_code for path in open_paths] == [200] * 3
        assert http.post("/v1/none", headers=good).json()["error"]["code"] is None
        assert http.get("/v1/models/none").status_code == 401


def test_calls(server: Server) -> None:
    given = triton.InferInput("x", [1, 3], "FP32")
    given.set_data_from_numpy(np.ones((1, 3), np.float32))
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc}") as grpc:
        assert grpc.is_server_ready()
        found = grpc.infer("double", [given], headers={"authorization": f"Bearer {GOOD}"})
        assert found.as_numpy("y").tolist() == [[2.0, 2.0, 2.0]]
        for headers in (None, {"authorization": f"Bearer {BAD}"}):
            with pytest.raises(InferenceServerException, match="API key: expected") as caught:
                grpc.infer("double", [given], headers=headers)
            assert caught.value.status() == "StatusCode.UNAUTHENTICATED"


@pytest.mark.parametrize("given", [None, "", "Bearer", f"Bearer {GOOD}x", GOOD, "Bearer \udcff"])
def test_wrong_keys(given: str | None) -> None:
    with pytest.raises(RefusedError):
        Keys([GOOD]).check(given)
    Keys().check(given)


def test_wrong_keys_are_refused_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right keys and requests without a key do not wait, nor do wrong ones beyond a number."""
    monkeypatch.setattr(protocol_keys, "WRONG_S", 0.2)
    monkeypatch.setattr(protocol_keys, "_MOST_WAITING", 2)

    async def admit(keys: Keys, given: str | None) -> tuple[bool, bool]:
        begun_s = time.monotonic()
        try:
            await keys.admit(given)
        except RefusedError:
            return False, time.monotonic() - begun_s >= 0.2
        return True, time.monotonic() - begun_s >= 0.2

    async def work() -> list[tuple[bool, bool]]:
        keys = Keys([GOOD])
        given = [f"Bearer {BAD}", "Bearer x", f"Bearer {GOOD}", "", None, "Bearer y"]
        found = await asyncio.gather(*(admit(keys, one) for one in given))
        return [*found, await admit(keys, "Bearer z"), await admit(Keys(), "Bearer z")]

    wrong, right, at_once = (False, True), (True, False), (False, False)
    expected = [wrong, wrong, right, at_once, at_once, at_once, wrong, right]
    assert asyncio.run(work()) == expected


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_both_protocols_refuse_wrong_keys_slowly(tmp_path: Path, protocol: str) -> None:
    keys = tmp_path / "keys"
    keys.write_text(GOOD)
    with fake_server("--api-key-file", str(keys), "--wrong-key", "0.5") as server:
        header, begun_s = {"authorization": f"Bearer {BAD}"}, time.monotonic()
        if protocol == "http":
            found = httpx.get(f"http://127.0.0.1:{server.http}/v2", headers=header)
            assert found.status_code == 401
        else:
            with (
                triton.InferenceServerClient(f"127.0.0.1:{server.grpc}") as grpc,
                pytest.raises(InferenceServerException, match="API key: expected"),
            ):
                grpc.get_model_metadata("double", headers=header)
        assert time.monotonic() - begun_s >= 0.5


def test_files_that_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(UserError, match="expected a key per line, got none"):
        read_keys([], empty)
    with pytest.raises(UserError, match="none: no such file"):
        read_keys([], tmp_path / "none")
    with pytest.raises(UserError, match="API key: expected visible ASCII characters"):
        read_keys(["a b"], None)
    assert GOOD not in json.dumps(repr(read_keys([GOOD], None)))

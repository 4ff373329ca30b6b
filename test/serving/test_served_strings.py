"""A model of strings over both protocols, in runs that requests do not fill."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from fake_server import Server, started
from handmade import model_of, tensor, value_info, write_plan
from onnx import helper, save

_COMMAND = (
    *(sys.executable, "-c"),
    "import sys; from tensoropt.serving.cli.serve import main; sys.exit(main())",
)
_BATCH = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("plans")
    node = helper.make_node("Identity", ["words"], ["same"])
    ends = [value_info("words", "string", None)], [value_info("same", "string", None)]
    model = model_of([node], *ends)
    save(model, folder / "model.onnx")
    entries = [[tensor(name, [_BATCH, 2], ["S(0)"], "string")] for name in ("words", "same")]
    write_plan(folder / "words", folder / "model.onnx", (2,), [model] * 2, *entries)
    ports = ["--port", "0", "--grpc-port", "0"]
    with started([*_COMMAND, str(folder / "words"), *ports, "--threads", "1"]) as found:
        yield found


def _words(samples: int) -> np.ndarray:
    texts = [f"wörd {number}\n" * (number % 3) for number in range(2 * samples)]
    return np.array(texts, object).reshape(samples, 2)


@pytest.mark.parametrize("samples", [1, 3, _BATCH])
@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_runs_that_are_not_full(server: Server, module: ModuleType, samples: int) -> None:
    words = _words(samples)
    given = module.InferInput("words", [samples, 2], "BYTES")
    given.set_data_from_numpy(np.char.encode(words.astype(str)).astype(object))
    port = server.http if module is tritonclient.http else server.grpc
    with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
        found = client.infer("words", [given]).as_numpy("same")
    decoded = [text.decode() for text in found.ravel()]
    assert (found.shape, decoded) == (words.shape, list(words.ravel()))


def test_requests_that_share_a_run(server: Server) -> None:
    def ask(number: int) -> list[str]:
        data = [f"{number} a", f"{number} b"]
        given = {"name": "words", "datatype": "BYTES", "shape": [1, 2], "data": data}
        url = f"http://127.0.0.1:{server.http}/v2/models/words/infer"
        answer = httpx.post(url, content=json.dumps({"inputs": [given]}), timeout=60)
        assert answer.status_code == 200, answer.text
        found: list[str] = answer.json()["outputs"][0]["data"]
        return found

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(16)))
    assert found == [[f"{number} a", f"{number} b"] for number in range(16)]

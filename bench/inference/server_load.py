"""Send requests from several clients in parallel, each over one connection, and print the outcome.

    python bench/inference/server_load.py PORT MODEL --inputs NPZ --requests 1000 --clients 16

A request is one sample of the inputs, in turn; its outputs are compared with the arrays `out:NAME`
in the file. Requests are encoded before the clock starts, as a load generator on a separate machine
would not take time from the ranks. Prints JSON: total seconds, the latency of each answer, errors
with their times, the number of wrong answers, and processor seconds.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import count

import grpc
import numpy as np

from tensoropt.runtime.support.dtypes import Array, name_of
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.serving.protocol import messages
from tensoropt.serving.protocol.tensors import DATATYPES

__all__ = ["Load"]

_TIMEOUT_S = 300.0
_LOOSE = 1e-3


@dataclass
class Load:
    """Outcome of some requests; ``errors`` are pairs of seconds and a text."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    wrong: int = 0
    answered_at: list[float] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    errors: list[tuple[float, str]] = field(default_factory=list)


Ask = Callable[[int], Mapping[str, Array]]


def _http(port: int, model: str, samples: list[dict[str, Array]]) -> Callable[[], Ask]:
    bodies = [_http_body(sample) for sample in samples]

    def connected() -> Ask:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)

        def ask(index: int) -> Mapping[str, Array]:
            head, body = bodies[index]
            headers = {"Inference-Header-Content-Length": str(head)}
            client.request("POST", f"/v2/models/{model}/infer", body, headers)
            answer = client.getresponse()
            found = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status} {found[:200]!r}")
            return _http_outputs(found, int(answer.headers["Inference-Header-Content-Length"]))

        return ask

    return connected


def _http_body(sample: Mapping[str, Array]) -> tuple[int, bytes]:
    inputs = [
        {
            "name": name,
            "datatype": DATATYPES[name_of(array.dtype)],
            "shape": list(array.shape),
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in sample.items()
    ]
    document = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    head = json.dumps(document).encode()
    return len(head), head + b"".join(array.tobytes() for array in sample.values())


def _http_outputs(body: bytes, head: int) -> dict[str, Array]:
    outputs, start = {}, head
    for entry in json.loads(body[:head])["outputs"]:
        end = start + entry["parameters"]["binary_data_size"]
        outputs[entry["name"]] = np.frombuffer(body[start:end], np.float32)
        start = end
    return outputs


def _grpc(port: int, model: str, samples: list[dict[str, Array]]) -> Callable[[], Ask]:
    requests = [_message(model, sample).SerializeToString() for sample in samples]

    def connected() -> Ask:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)
        call = channel.unary_unary(
            f"/{messages.SERVICE}/ModelInfer", None, messages.ModelInferResponse.FromString
        )

        def ask(index: int) -> Mapping[str, Array]:
            response = call(requests[index], timeout=_TIMEOUT_S)
            return {
                entry.name: np.frombuffer(raw, np.float32)
                for entry, raw in zip(response.outputs, response.raw_output_contents, strict=True)
            }

        return ask

    return connected


def _message(model: str, sample: Mapping[str, Array]) -> messages.ModelInferRequest:
    request = messages.ModelInferRequest(model_name=model)
    for name, array in sample.items():
        datatype = DATATYPES[name_of(array.dtype)]
        request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    return request


def _load(
    connected: Callable[[], Ask], wanted: list[dict[str, Array]], requests: int, clients: int
) -> Load:
    load, numbers, lock = Load(), count(), threading.Lock()
    begun, cpu = time.perf_counter(), time.process_time()

    def work() -> None:
        ask = connected()
        while (number := next(numbers)) < requests:
            start = time.perf_counter()
            try:
                outputs = ask(number % len(wanted))
            except Exception as error:
                with lock:
                    load.errors.append((time.time(), " ".join(str(error).split())[:200]))
                ask = connected()
                continue
            end = time.perf_counter()
            with lock:
                load.latencies_s.append(end - start)
                load.answered_at.append(time.time())
                load.wrong += not _is_right(outputs, wanted[number % len(wanted)])

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.seconds, load.cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    return load


def _is_right(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> bool:
    return all(
        np.allclose(found[name], array.ravel(), rtol=_LOOSE, atol=_LOOSE * np.abs(array).max())
        for name, array in wanted.items()
    )


def main() -> int:
    """Run the load and print its outcome."""
    parser = Parser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("port", type=int)
    parser.add_argument("model")
    parser.add_argument("--inputs", required=True, metavar="NPZ")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--grpc", action="store_true")
    arguments = parser.parse()
    with np.load(arguments.inputs) as file:
        arrays = {name: file[name] for name in file}
    rows = range(len(next(iter(arrays.values()))))
    samples: list[dict[str, Array]] = [{} for _ in rows]
    wanted: list[dict[str, Array]] = [{} for _ in rows]
    for name, array in arrays.items():
        for row in rows:
            kind = wanted if name.startswith("out:") else samples
            kind[row][name.removeprefix("out:")] = array[row : row + 1]
    connected = (_grpc if arguments.grpc else _http)(arguments.port, arguments.model, samples)
    load = _load(connected, wanted, arguments.requests, arguments.clients)
    json.dump(asdict(load), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))

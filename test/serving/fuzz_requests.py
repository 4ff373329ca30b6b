"""Malformed requests to a server without ranks: none may be answered 5xx, hang, or kill it.

python fuzz_requests.py [--count N] [--seed S]

Requests are drawn by mending valid ones for the worse: nulls, lone surrogates, huge shapes and
lengths, deep nesting, NaN, random bytes; JSON, binary tensors, chats, and messages of gRPC.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import reduce
from typing import Any

import grpc
import httpx
from fake_server import Server, fake_server

from tensoropt.serving.protocol import messages

_LIMIT_S = 20.0
_DEEP = 900  # levels, near what Python's parser takes
_CALLS = ("ModelInfer", "ModelReady", "ModelMetadata", "RepositoryIndex", "ModelStatistics")
_GRPC_ANSWERS = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"}

_INFER: dict[str, Any] = {
    "id": "7",
    "parameters": {"binary_data_output": False},
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [1, 3], "parameters": {}, "data": [1, 2.5, -3]}
    ],
    "outputs": [{"name": "y", "parameters": {"binary_data": False}}],
}
_WORDS: dict[str, Any] = {
    "inputs": [{"name": "words", "datatype": "BYTES", "shape": [1, 2], "data": ["a", "ö"]}]
}
_CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "assistant", "content": "", "reasoning_content": "a"},
        {"role": "user", "tool_call_id": "1", "content": [{"type": "text", "text": "a"}]},
    ],
    "temperature": 0.5,
    "stream": False,
    "stream_options": None,
    "response_format": {"type": "text"},
    "logit_bias": {"5": 1.5},
    "tools": [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    ],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "n": 2,
    "logprobs": True,
    "top_logprobs": 2,
    "presence_penalty": 0.5,
    "repetition_penalty": 1.1,
    "stop": ["x"],
    "seed": 1,
    "max_tokens": 3,
    "reasoning_effort": "none",
    "chat_template_kwargs": {},
}
_TEXT: dict[str, Any] = {
    "model": "m",
    "prompt": ["ab", "c"],
    "max_tokens": 2,
    "n": 1,
    "best_of": 2,
    "logprobs": 1,
    "top_p": 0.9,
    "min_p": 0.1,
    "stop_token_ids": [3],
    "skip_special_tokens": True,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"b": {}}}},
    },
}
_EMBEDDINGS: dict[str, Any] = {
    "model": "e",
    "input": ["ab", "c"],
    "encoding_format": "float",
    "dimensions": 2,
}
_JSON = {
    "/v1/embeddings": _EMBEDDINGS,
    "/v2/models/double/infer": _INFER,
    "/v2/models/words/infer": _WORDS,
    "/v1/chat/completions": _CHAT,
    "/v1/completions": _TEXT,
}
_HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 63, 1 << 64, 10**30, 10**4000, 1.5, -0.0, 1e300, 5e-324, 1e-320),
    *(float("nan"), float("inf"), float("-inf"), "NaN", "Infinity"),
    *("", "\ud800", "a\udfff", "\0", "\n", "é", "x" * 10**5, "FP64", "INT8", "BYTES", "BF16"),
    *([], {}, [None], [[]], [[1], [1, 2]], {"": None}, {"a": {}}, [1] * 80, [0, 10**30]),
    *(
        "ﷺ" * 4000,
        " " * 10**5,
        [1 << 63],
        [[3, 1 << 63]],
        {"3": 1e300},
        {str(1 << 63): 1},
        [3] * 9000,
    ),
    *(
        ["\n"] * 65,
        ["a" * 3000 + str(n) for n in range(60)],
        {"166": 100, "95": 100},
        [166, 95, 10**4000],
    ),
    *([0, 1 << 62], ["a", 1], [True, 1.5], [1, 1 << 63], {"binary_data_size": 10**30}),
    lambda: reduce(lambda inner, _: [inner], range(_DEEP), 1),
    lambda: reduce(lambda inner, _: {"a": inner}, range(_DEEP), "b"),
)
_LENGTHS = (
    "0",
    "-1",
    "abc",
    "9" * 5000,
    "0" * 4999 + "7",
    "1e3",
    "+5",
    "\u00b2",
    "18446744073709551616",
)
_PATHS = (
    *("/v2/models/%ED%A0%80/infer", "/v2/models/" + "x" * 5000, "/v2/models//infer", "//", "/%00"),
    *("/v2/models/double/versions/%FF/infer", "/v1/models/%0A", "/v2/models/stats/stats", "/v2/%"),
    *("*", "/v2/health/ready?" + "a=b&" * 5000, "/metrics/../v2"),
)


@dataclass(frozen=True)
class Case:
    """A request: by the name of the kind, for a person, and what sends it and names the answer."""

    kind: str
    told: str
    ask: Callable[[Clients], str]


class Clients:
    """What asks a server."""

    def __init__(self, server: Server) -> None:
        self.port = server.http
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{server.http}", timeout=_LIMIT_S)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc}")

    def close(self) -> None:
        """Close the connections."""
        self.http.close()
        self.channel.close()

    def post(self, path: str, content: bytes, headers: Mapping[str, str | bytes]) -> str:
        """Return the status of an answer over HTTP, which must be JSON; else what is wrong."""
        answer = self.http.post(path, content=content, headers=dict(headers))
        _check_json(answer)
        return str(answer.status_code)

    def call(self, name: str, raw: bytes) -> str:
        """Return the code of an answer over gRPC."""
        call = self.channel.unary_unary(f"/{messages.SERVICE}/{name}")
        try:
            call(raw, timeout=_LIMIT_S)
        except grpc.RpcError as error:
            code: str = error.code().name
            assert "\n" not in error.details()
            return code
        return "OK"

    def send(self, raw: bytes) -> str:
        """Return the status of what a socket is answered, or that it was closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=_LIMIT_S) as client:
            client.sendall(raw)
            found = client.recv(1 << 16)
        status = re.match(rb"HTTP/1\.1 (\d{3}) ", found)
        return status[1].decode() if status else "closed"


def _check_json(answer: httpx.Response) -> None:
    """Raise ValueError for an answer that strict parsers refuse, or an error of several lines."""
    if answer.headers["content-type"] != "application/json":
        return
    document = json.loads(answer.content, parse_constant=_refuse)
    if answer.status_code >= 400:
        error = document["error"]
        text = error["message"] if isinstance(error, dict) else error
        assert isinstance(text, str)
        assert text.isprintable()
        assert len(text) < 2000


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def cases(count: int, seed: int) -> Iterator[Case]:
    """Yield requests of all kinds."""
    makers = (_json, _json, _json, _json, _binary, _bytes, _path, _message, _raw_message)
    for number in range(count):
        draw = random.Random(f"{seed}-{number}")
        yield draw.choice(makers)(draw)


def _json(draw: random.Random) -> Case:
    path = draw.choice(list(_JSON))
    document = copy.deepcopy(_JSON[path])
    for _ in range(draw.choice((1, 1, 2, 4))):
        document = _changed(document, draw)
    body = json.dumps(document, ensure_ascii=draw.random() < 0.9)
    content = body.encode("utf-8", "surrogatepass")
    return Case("json", f"{path} {body:.300}", lambda clients: clients.post(path, content, {}))


def _changed(document: Any, draw: random.Random) -> Any:
    """Return a document with one hostile value, a field less, or a field more."""
    places = list(_places(document))
    if not places:
        return _hostile(draw)
    within, key = draw.choice(places)
    way = draw.random()
    if way < 0.1:
        del within[key]
    elif way < 0.2 and isinstance(within, dict):
        within[draw.choice(("other", "\ud800", "", "name"))] = _hostile(draw)
    else:
        within[key] = _hostile(draw)
    return document


def _hostile(draw: random.Random) -> Any:
    """Return a value that may be changed further."""
    value = draw.choice(_HOSTILE)
    return value() if callable(value) else copy.deepcopy(value)


def _places(node: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if depth > 8 or not isinstance(node, (dict, list)):
        return
    for key in node if isinstance(node, dict) else range(len(node)):
        yield node, key
        yield from _places(node[key], depth + 1)


def _binary(draw: random.Random) -> Case:
    document = copy.deepcopy(_INFER)
    entry = document["inputs"][0]
    del entry["data"]
    entry["parameters"]["binary_data_size"] = 12
    entry["datatype"] = draw.choice(("FP32", "FP32", "BYTES", "BOOL", "BF16"))
    if draw.random() < 0.5:
        document = _changed(document, draw)
    head = json.dumps(document).encode()
    tail = draw.randbytes(draw.choice((0, 11, 12, 12, 13, 100)))
    right = str(len(head) + draw.choice((-1, 0, 0, 0, 1)))
    length = draw.choice((right, right, *_LENGTHS)).encode("latin-1")
    headers = {"Inference-Header-Content-Length": length}
    path = "/v2/models/double/infer"
    told = f"{length[:30]!r} {head[:300]!r} {tail!r}"
    return Case("binary", told, lambda clients: clients.post(path, head + tail, headers))


def _bytes(draw: random.Random) -> Case:
    path = draw.choice(list(_JSON))
    content = bytearray(json.dumps(_JSON[path]).encode())
    for _ in range(draw.choice((1, 3, 30))):
        content[draw.randrange(len(content))] = draw.randrange(256)
    content = content[: draw.choice((len(content), draw.randrange(len(content))))]
    told = f"{path} {bytes(content)!r}"
    return Case("bytes", told, lambda clients: clients.post(path, bytes(content), {}))


def _path(draw: random.Random) -> Case:
    method = draw.choice(("GET", "POST", "PUT", "HEAD", "get", "\u00e9"))
    path = draw.choice((*_PATHS, "/" + draw.randbytes(8).decode("latin-1")))
    line = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n"
    more = draw.choice(
        ("", "X-Request-Id: \u00e9\r\n", "Host: \u00ff\r\n", "Content-Encoding: x\r\n")
    )
    raw = f"{line}{more}\r\n".encode("latin-1")
    return Case("path", repr(raw[:300]), lambda clients: clients.send(raw))


def _message(draw: random.Random) -> Case:
    request = messages.ModelInferRequest(model_name="double", id="7")
    given = request.inputs.add(name="x", datatype="FP32", shape=[1, 3])
    if draw.random() < 0.5:
        given.contents.fp32_contents.extend([1, float("nan"), 3])
    else:
        request.raw_input_contents.append(draw.randbytes(draw.choice((0, 11, 12, 12, 13))))
    if draw.random() < 0.8:
        _change_message(request, given, draw)
    raw = request.SerializeToString()
    return Case("message", f"{request!s:.300}", lambda clients: clients.call("ModelInfer", raw))


def _change_message(request: Any, given: Any, draw: random.Random) -> None:
    way = draw.randrange(8)
    if way == 0:
        given.shape[:] = draw.choice(([0, 1 << 62], [1] * 80, [-1, 3], [], [1 << 40, 1 << 40]))
    elif way == 1:
        given.datatype = draw.choice(("", "FP64", "BYTES", "BF16", "x" * 10**5, "\n"))
    elif way == 2:
        given.name = draw.choice(("", "x" * 10**5, "é\n\0"))
    elif way == 3:
        given.contents.int_contents.extend([1, 2, 3])
    elif way == 4:
        request.outputs.add(name=draw.choice(("", "z", "y" * 10**5)))
    elif way == 5:
        request.inputs.add().CopyFrom(given)
    elif way == 6:
        request.model_name = draw.choice(("", "m", "words", "x" * 10**5, "\n"))
    else:
        given.parameters["shared_memory_region"].string_param = "r"


def _raw_message(draw: random.Random) -> Case:
    name = draw.choice(_CALLS)
    raw = bytearray(_valid_message(name))
    for _ in range(draw.choice((1, 2, 8))):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    sent = bytes(raw) if draw.random() < 0.7 else draw.randbytes(draw.randrange(1, 100))
    return Case("raw message", f"{name} {sent!r}", lambda clients: clients.call(name, sent))


def _valid_message(name: str) -> bytes:
    if name == "RepositoryIndex":
        return _packed(messages.RepositoryIndexRequest(ready=True))
    if name != "ModelInfer":
        return _packed(getattr(messages, f"{name}Request")(name="double", version="1"))
    request = messages.ModelInferRequest(model_name="double", raw_input_contents=[bytes(12)])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 3])
    return _packed(request)


def _packed(message: Any) -> bytes:
    raw: bytes = message.SerializeToString()
    return raw


def fault(case: Case, clients: Clients) -> tuple[str, str]:
    """Return the answer to a request, and what is wrong with it, nothing if it is right."""
    try:
        answer = case.ask(clients)
    except Exception as error:
        return "none", f"{type(error).__name__}: {error!s:.300}"
    is_right = answer in _GRPC_ANSWERS or answer == "closed" or "200" <= answer < "500"
    return answer, "" if is_right else f"was answered {answer}"


def run(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Send the requests; return how many had which answer, and what went wrong."""
    answers: Counter[str] = Counter()
    faults: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        fake_server("--models", "all", "--folder", folder) as server,
        closing(Clients(server)) as clients,
    ):
        for case in cases(count, seed):
            answer, wrong = fault(case, clients)
            answers[answer] += 1
            if wrong:
                faults.append(f"{case.kind}: {wrong}\n    {case.told}")
        for path in _JSON:
            status = clients.post(path, json.dumps(_JSON[path]).encode(), {})
            if status != "200":
                faults.append(f"a valid request at the end: {path}: was answered {status}")
        if server.process.poll() is not None:
            faults.append(f"the server ended: {server.process.returncode}")
    return answers, faults


def main(argv: Sequence[str] | None = None) -> int:
    """Send requests, print the faults and the counts of answers, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=12000, help="how many requests")
    parser.add_argument("--seed", type=int, default=0, help="which requests")
    arguments = parser.parse_args(argv)
    answers, faults = run(arguments.count, arguments.seed)
    print("\n".join(faults))
    told = ", ".join(f"{answer} {number}" for answer, number in sorted(answers.items()))
    print(f"{arguments.count} requests, {len(faults)} faults; answers: {told}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

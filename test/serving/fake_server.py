"""A server whose models have no ranks, in a process of its own: its start, and its address.

python fake_server.py [--max-body BYTES] [--patience S] [--models all] ...
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SERVING = re.compile(r"serving at http://127\.0\.0\.1:(\d+)(?: and grpc://127\.0\.0\.1:(\d+))?")


@dataclass(frozen=True)
class Server:
    """A server that has been started: where it listens, and its process."""

    process: subprocess.Popen[str]
    http: int
    grpc: int

    def ended(self) -> tuple[int, str]:
        """Return its exit status, and what else it said."""
        _, text = self.process.communicate(timeout=120)
        return self.process.returncode, text


@contextmanager
def started(command: Sequence[str]) -> Iterator[Server]:
    """Start a server, and kill it at the end if it is still there."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield _found(process)
    finally:
        process.kill()
        process.communicate()


def _found(process: subprocess.Popen[str]) -> Server:
    said = ""
    assert process.stderr is not None
    for line in process.stderr:
        said += line
        if match := _SERVING.search(line):
            return Server(process, int(match[1]), int(match[2] or 0))
    raise AssertionError(f"the server ended: {said}")


@contextmanager
def fake_server(*arguments: str) -> Iterator[Server]:
    with started([sys.executable, str(Path(__file__)), *arguments]) as server:
        yield server


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-body", type=int, default=1 << 20)
    parser.add_argument("--max-bodies", type=int)
    parser.add_argument("--patience", type=float)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--address-file", type=Path)
    parser.add_argument("--log-format")
    parser.add_argument("--api-key-file", type=Path)
    parser.add_argument("--wrong-key", type=float, default=0.01)
    parser.add_argument("--models", default="double", choices=("double", "all"))
    parser.add_argument("--folder", type=Path, help="for the tokenizer of the models of texts")
    arguments = parser.parse_args()

    from fake_sessions import INPUTS, OUTPUTS, SAME, WORDS, EchoSession, FakeSession
    from fake_texts import ByteSession, VectorSession, encoder_of
    from fastapi import APIRouter, Response

    from tensoropt.runtime.support import http_connection
    from tensoropt.runtime.support.http_server import listen
    from tensoropt.serving.http import body, connection
    from tensoropt.serving.log import set_up
    from tensoropt.serving.metrics import Metrics
    from tensoropt.serving.model import Model
    from tensoropt.serving.openai.routes import openai_routes
    from tensoropt.serving.options import ServerOptions, ServingOptions, TextLimits
    from tensoropt.serving.protocol import keys as protocol_keys
    from tensoropt.serving.protocol.keys import read_keys
    from tensoropt.serving.server import serve
    from tensoropt.serving.service import Service
    from tensoropt.serving.side_process import SideProcess
    from tensoropt.serving.text_model import TextModel

    if arguments.patience is not None:
        body.BODY_S = connection.ANSWER_S = arguments.patience
        http_connection.HEADERS_S = arguments.patience

    protocol_keys.WRONG_S = arguments.wrong_key
    set_up(is_json=arguments.log_format == "json", has_requests=arguments.log_format is not None)
    more = APIRouter()

    @more.get("/broken")
    async def broken() -> Response:
        raise ValueError("broken\nin two lines")

    @more.get("/big")
    async def big() -> Response:
        return Response(bytes(32 << 20))

    metrics = Metrics()
    models = {"double": Model("double", INPUTS, OUTPUTS, FakeSession(), ServingOptions(), metrics)}
    texts: dict[str, TextModel] = {}
    if arguments.models == "all":
        models["words"] = Model("words", WORDS, SAME, EchoSession(), ServingOptions(), metrics)
        session = ByteSession(arguments.folder)
        texts["m"] = TextModel("m", session, TextLimits(), metrics)
        own, encoder = ServingOptions(), encoder_of(session)
        tensors = encoder.inputs, [encoder.output]
        models["e"] = Model("e", *tensors, VectorSession(), own, metrics, encoder)
    service = Service(models, metrics, arguments.timeout, texts)
    keys = read_keys([], arguments.api_key_file)
    options = ServerOptions(grpc_port=0, address_file=arguments.address_file, keys=keys)
    side = SideProcess(arguments.max_body, arguments.timeout)
    bodies = body.Bodies(arguments.max_body, arguments.max_bodies, side)
    routes = openai_routes(service, bodies, 20.0)
    with listen("HTTP", "127.0.0.1", 0) as listener:
        asyncio.run(serve(service, listener, options, bodies, [more, *routes]))


if __name__ == "__main__":
    _main()

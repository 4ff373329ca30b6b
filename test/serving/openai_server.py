"""A server of a model of letters on two ranks, and OpenAI's client of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import openai
from fake_server import Server, started

COMMAND = (
    *(sys.executable, "-c"),
    "import sys; from tensoropt.serving.cli.serve import main; sys.exit(main())",
)
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }} as <tool_call>\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.tool_calls | default('') }}\n"
    "{% endfor %}assistant: "
)


@contextmanager
def serving(*flags: str) -> Iterator[Server]:
    with started([*COMMAND, *flags, "--port", "0", "--no-grpc", "--threads", "1"]) as server:
        yield server


def client_of(server: Server, api_key: str = "none") -> openai.OpenAI:
    url = f"http://127.0.0.1:{server.http}/v1"
    return openai.OpenAI(api_key=api_key, base_url=url, max_retries=0, timeout=60.0)

"""Measure texts of many clients on tensoropt-serve: rates, times to the first token and per token.

    python bench/inference/text_load.py FOLDER NAME ... [--before PYTHON]

FOLDER is the output of bench/inference/decoders.py. Each model is compiled for one rank and for
two, and served. Clients stream texts of prompts of different lengths, each over its own connection.
`--before` is the interpreter of another installation, for example of an older commit: its server
and this one take turns with the same plans and requests, and the idle one sleeps. Figures are
medians of rounds; percentiles are over all rounds.

Then a long prompt arrives while texts run: prints the longest pause between two of their tokens,
next to the time of one part of a prompt (`--step-tokens`).

With `--crowd N ...` that many prompts of `--long` tokens arrive at once instead, and with
`--grammars N ...` that many prompts with a JSON schema of their own, while texts run in sequence.
Prints the worst delay, which is their longest wait for a token, and the time to the first token of
a short prompt that arrives last, and of the others.

With `--history N` chats have two turns instead: a prompt of N tokens, and the same with 32 more.
Prints the times to the first token of each turn, with the number of `--clients`.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np

from inference.text import plan_of, prompt_of
from tensoropt.runtime.session.session import cores
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.tables import columns

_SERVE = "import sys; from tensoropt.serving.cli.serve import main; sys.exit(main())"
_SERVING = re.compile(r"serving at http://127\.0\.0\.1:(\d+)")
_NEW = 32  # tokens of the second turn of a chat
_HEAD = ["model", "ranks", "server", "clients", "tok/s", "first p50", "first p99", "token p50",
    "token p99"]  # fmt: skip


@dataclass
class Text:
    """Seconds at which the tokens of a text arrived since its request was sent, and the text."""

    at_s: list[float] = field(default_factory=list)
    text: str = ""


@contextmanager
def serve(python: str, plan: Path, ranks: int, *flags: str) -> Iterator[int]:
    """Start a server, and yield its port."""
    threads = str(max(1, cores() // ranks))
    own = [
        "--port",
        "0",
        "--no-grpc",
        "--threads",
        threads,
        "--no-access-log",
        "--timeout",
        "900",
        *flags,
    ]
    command = [python, "-c", _SERVE, f"m={plan}", *own]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        port = next(int(found[1]) for line in process.stderr if (found := _SERVING.search(line)))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield port
    finally:
        process.terminate()
        process.wait()


def stream(port: int, prompt: Sequence[int], count: int, **more: object) -> Text:
    """Stream a text, and note when its tokens arrive; ``more`` are fields of its request."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"model": "m", "prompt": list(prompt), "max_tokens": count, "temperature": 0, **more}
    begun, found = time.perf_counter(), Text()
    client.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
    answer = client.getresponse()
    while line := answer.readline():
        if line.startswith(b"data: {"):
            found.at_s.append(time.perf_counter() - begun)
            found.text += json.loads(line[6:])["choices"][0]["text"]
    client.close()
    if answer.status != 200 or not found.at_s:
        raise SystemExit(f"status {answer.status}")
    return found


def load(
    port: int, clients: int, requests: int, count: int, number: int
) -> tuple[float, list[Text]]:
    """Return the tokens per second of all clients together, and the texts.

    Prompts with another number have another beginning, so no caches of them were kept.
    """
    chosen = random.Random(1)
    prompts = [prompt_of(chosen.randrange(8, 64), number) for _ in range(requests)]
    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        texts = [*threads.map(lambda prompt: stream(port, prompt, count), prompts)]
    taken = time.perf_counter() - begun
    return sum(len(text.at_s) for text in texts) / taken, texts


def row(rates: Sequence[float], texts: Sequence[Text]) -> list[str]:
    """Return the figures of a server with a number of clients."""
    firsts = [text.at_s[0] for text in texts]
    gaps = np.concatenate([np.diff(text.at_s) for text in texts])
    times = (float(np.percentile(of, p)) for of in (firsts, gaps) for p in (50, 99))
    return [f"{statistics.median(rates):.0f}", *(f"{1e3 * t:.1f} ms" for t in times)]


def compare(name: str, ranks: int, ports: dict[str, int], arguments: argparse.Namespace) -> None:
    """Print the figures of all servers, which take turns."""
    rows, numbers = [], itertools.count()
    for clients in arguments.clients:
        requests = max(2, clients)
        rates: dict[str, list[float]] = {server: [] for server in ports}
        texts: dict[str, list[Text]] = {server: [] for server in ports}
        for is_timed in [False] + [True] * arguments.rounds:
            number = next(numbers)
            for server, port in ports.items():
                rate, found = load(port, clients, requests, arguments.count, number)
                if is_timed:
                    rates[server].append(rate)
                    texts[server] += found
        said = {tuple(text.text for text in found) for found in texts.values()}
        assert len(said) == 1, f"{name}: servers differ with {clients} clients"
        for server in ports:
            figures = row(rates[server], texts[server])
            rows.append([name, str(ranks), server, str(clients), *figures])
    print("\n".join(columns([_HEAD, *rows])), flush=True)


def continue_chats(
    name: str, ranks: int, ports: dict[str, int], arguments: argparse.Namespace
) -> None:
    """Print the times to the first token of two turns, on all servers, which take turns."""
    rows = [["model", "ranks", "server", "clients", "first turn", "second turn"]]
    numbers = itertools.count()
    for clients in arguments.clients:
        found: dict[str, tuple[list[float], list[float]]] = {server: ([], []) for server in ports}
        for is_timed in [False] + [True] * arguments.rounds:
            prompts = [prompt_of(arguments.history, next(numbers)) for _ in range(clients)]
            for server, port in ports.items():
                for turn, given in enumerate((prompts, [[*own, *range(_NEW)] for own in prompts])):
                    with ThreadPoolExecutor(clients) as threads:
                        ask = partial(stream, port, count=arguments.count)
                        texts = [*threads.map(ask, given)]
                    found[server][turn].extend(text.at_s[0] for text in texts if is_timed)
        for server, turns in found.items():
            figures = (f"{1e3 * statistics.median(turn):.1f} ms" for turn in turns)
            rows.append([name, str(ranks), server, str(clients), *figures])
    print("\n".join(columns(rows)), flush=True)


def interrupt(port: int, arguments: argparse.Namespace) -> tuple[float, float]:
    """Return the longest pause of running texts, without and with a long prompt that arrives."""
    pauses = []
    for is_long in (False, True):
        with ThreadPoolExecutor(4) as threads:
            running = [
                threads.submit(stream, port, prompt_of(8), arguments.count) for _ in range(3)
            ]
            time.sleep(0.5)
            if is_long:
                stream(port, prompt_of(arguments.long, 4), 1)
            gaps = [np.diff(text.result().at_s)[5:].max() for text in running]
        pauses.append(float(max(gaps)))
    return pauses[0], pauses[1]


def schema_of(number: int, fields: int) -> dict[str, Any]:
    """Return a JSON schema with names and patterns of its own."""
    kinds: tuple[dict[str, Any], ...] = (
        {"type": "string", "pattern": f"^[a-z]{{2,{number % 20 + 3}}}-[0-9]{{3}}x$"},
        {"type": "integer", "minimum": number, "maximum": 10**6},
        {"enum": [f"a{n}" for n in range(20)]},
        {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 20},
    )
    properties = {f"field_{number}_{n}": kinds[n % len(kinds)] for n in range(fields)}
    return {"type": "object", "properties": properties, "required": [*properties]}


def crowd(port: int, arrivals: Sequence[Callable[[], Text]]) -> list[float]:
    """Return the longest wait for a token of texts in sequence, while others arrive.

    Also the times to the first token of a short prompt that arrives last, and of the others: their
    median and the longest.
    """
    with ThreadPoolExecutor(2 + len(arrivals)) as threads:
        ends = threading.Event()
        running = threads.submit(_endless, port, ends)
        time.sleep(1.0)
        begun_s = time.perf_counter()
        others = [threads.submit(arrive) for arrive in arrivals]
        time.sleep(0.2)
        late = threads.submit(stream, port, prompt_of(9, 77), 4)
        firsts = [text.result().at_s[0] for text in others]
        first = late.result().at_s[0]
        ends.set()
        pauses = [pause for end_s, pause in running.result() if end_s > begun_s]
    return [max(pauses), first, statistics.median(firsts), max(firsts)]


def _endless(port: int, ends: threading.Event) -> list[tuple[float, float]]:
    """Return the waits for each token of texts in sequence: the end and the length of each."""
    found: list[tuple[float, float]] = []
    while not ends.is_set():
        begun_s = time.perf_counter()
        at_s = [0.0, *stream(port, prompt_of(8), 400).at_s]
        found += [(begun_s + to_s, to_s - from_s) for from_s, to_s in itertools.pairwise(at_s)]
    return found


def delay(name: str, ranks: int, ports: dict[str, int], arguments: argparse.Namespace) -> None:
    """Print the worst delays by crowds, on all servers, which take turns."""
    head = ["model", "ranks", "server", "arrivals", "worst wait", "late first", "first p50"]
    rows, numbers = [[*head, "first max"]], itertools.count(1)
    kinds = [("prompts", count) for count in arguments.crowd]
    kinds += [("grammars", count) for count in arguments.grammars]
    for kind, count in kinds:
        for server, port in ports.items():
            asks = []
            for number in (next(numbers) for _ in range(count)):
                form = {"type": "json_schema", "json_schema": {"schema": schema_of(number, 600)}}
                is_long = kind == "prompts"
                prompt = prompt_of(arguments.long if is_long else 9, number)
                more = {} if is_long else {"response_format": form}
                asks.append(partial(stream, port, prompt, 8, **more))
            figures = [f"{figure:.2f} s" for figure in crowd(port, asks)]
            rows.append([name, str(ranks), server, f"{count} {kind}", *figures])
    print("\n".join(columns(rows)), flush=True)


def main() -> None:
    """Print a table per model and number of ranks."""
    parser = Parser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--before", metavar="PYTHON")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--count", type=int, default=64, metavar="TOKENS")
    parser.add_argument("--history", type=int, metavar="TOKENS")
    parser.add_argument("--long", type=int, default=512, metavar="TOKENS")
    parser.add_argument("--step-tokens", type=int, default=64, metavar="TOKENS")
    parser.add_argument("--crowd", type=int, nargs="+", default=[], metavar="PROMPTS")
    parser.add_argument("--grammars", type=int, nargs="+", default=[], metavar="CLIENTS")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse()
    pythons = {"before": arguments.before} if arguments.before else {}
    with tempfile.TemporaryDirectory() as where:
        for name in arguments.names:
            for ranks in arguments.ranks:
                plan = plan_of(arguments.folder / name / "model.onnx", ranks, Path(where))
                with ExitStack() as stack:
                    ports = {
                        server: stack.enter_context(serve(python, plan, ranks))
                        for server, python in {**pythons, "now": sys.executable}.items()
                    }
                    if arguments.crowd or arguments.grammars:
                        delay(name, ranks, ports, arguments)
                        continue
                    if arguments.history:
                        continue_chats(name, ranks, ports, arguments)
                        continue
                    compare(name, ranks, ports, arguments)
                step = str(arguments.step_tokens)
                with serve(sys.executable, plan, ranks, "--step-tokens", step) as port:
                    parts = [prompt_of(arguments.step_tokens, 1 + n) for n in range(3)]
                    part_s = min(stream(port, part, 1).at_s[0] for part in parts)
                    alone_s, long_s = interrupt(port, arguments)
                    print(
                        f"{name}, {ranks} ranks: {step} tokens of a prompt take {part_s:.3f} s; "
                        f"longest pause of 3 texts {alone_s:.3f} s, {long_s:.3f} s while a prompt "
                        f"of {arguments.long} tokens arrives",
                        flush=True,
                    )


if __name__ == "__main__":
    sys.exit(run_command(main))

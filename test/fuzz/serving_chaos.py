"""Attacks a server with large, unfinished and endless requests, and with ranks that hang or die.

``make serving-chaos ARGS="[--rounds 3] [--seed 0] [--mib 60]"``: a server has a plan of tensors and
two decoders, on two ranks each. Each round makes every attack once, in random order, and measures
how long a health check takes at the same time. After each attack the server must be ready within a
minute and answer all models right. At the end SIGTERM must end it though a rank is stopped. Prints
what each attack did, and exits with 1 if an answer was wrong or anything hung.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import handmade_decoder
import numpy as np
from fake_server import Server, started
from handmade import Perceptron
from letters import letters_plan
from test_text import write_tokenizer

CONTEXT = 1024
READY_S = 60.0
STALL_S, GRACE_S = 5.0, 2.0
_SERVE = "import sys; from tensoropt.serving.cli.serve import main; sys.exit(main())"
_INFER = "/v2/models/m/infer"
_TEXT = "/v1/completions"
_PLANNED = ("--mesh", "2", "--device", "v100", "--pick", "leanest")
_X = np.random.default_rng(3).random((2, 6), np.float32)


@dataclass
class Report:
    """What attacks came to: lines to print, counts of answers by status, and failures."""

    lines: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


class Target:
    """A server under attack."""

    def __init__(self, server: Server, expected: Any, tokens: list[int], mib: int) -> None:
        self.server, self.expected, self.tokens, self.mib = server, expected, tokens, mib
        self.report, self.random = Report(), random.Random(0)

    def ask(self, path: str, body: bytes | None = None, timeout_s: float = 300.0) -> Any:
        """Return the status and the body of an answer; status 0 is a closed connection."""
        client = http.client.HTTPConnection("127.0.0.1", self.server.http, timeout=timeout_s)
        with contextlib.closing(client):
            try:
                client.request("GET" if body is None else "POST", path, body)
                answer = client.getresponse()
                status, found = answer.status, answer.read()
            except (ConnectionError, http.client.HTTPException):
                status, found = 0, b""
        self.report.statuses[status] += body is not None
        return status, found

    def infer(self) -> Any:
        return self.ask(_INFER, tensor_body(_X.ravel().tolist(), [*_X.shape]))

    def text(self) -> Any:
        return self.ask(_TEXT, text_body("t3 t7 t1", max_tokens=6))

    def letters(self) -> Any:
        body = {"model": "l", "prompt": "a", "max_tokens": 2}
        return self.ask(_TEXT, json.dumps(body).encode())

    def check(self, what: str) -> None:
        """Wait until the server is ready, and compare the answers of both models."""
        until = time.monotonic() + READY_S
        while self.ask("/v2/health/ready")[0] != 200:
            if time.monotonic() > until:
                self.report.failures.append(f"{what}: not ready within {READY_S:g} s")
                return
            time.sleep(0.05)
        for name, ask, wrong in (
            ("m", self.infer, self._is_wrong),
            ("d", self.text, self._is_off),
            ("l", self.letters, lambda _: False),
        ):
            status, found = ask()
            if status != 200 or wrong(json.loads(found)):
                self.report.failures.append(f"{what}: {name} answers {status} {found[:200]!r}")

    def _is_wrong(self, found: Any) -> bool:
        y = np.array(found["outputs"][0]["data"]).reshape(self.expected.shape)
        return not np.allclose(y, self.expected, rtol=1e-4)

    def _is_off(self, found: Any) -> bool:
        text = found["choices"][0]["text"]
        return bool(text.split() != [f"t{token}" for token in self.tokens])

    def ranks(self) -> list[int]:
        """Return the processes of all ranks."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                line = (folder / "cmdline").read_bytes()
                if parent == self.server.process.pid and b"launch.rank" in line:
                    found.append(int(folder.name))
        return sorted(found)

    @contextmanager
    def watched(self, what: str) -> Iterator[list[str]]:
        """Measure health checks and memory meanwhile; what is added to the list is printed too."""
        waits: list[float] = []
        over, notes = threading.Event(), []
        processes = [self.server.process.pid, *self.ranks()]
        before = [_reset_peak(process) for process in processes]

        def watch() -> None:
            while True:  # at least one check, however short the attack is
                begun = time.monotonic()
                self.ask("/v2/health/live")
                waits.append(time.monotonic() - begun)
                if over.wait(0.02):
                    return

        watching = threading.Thread(target=watch)
        watching.start()
        begun = time.monotonic()
        try:
            yield notes
        finally:
            took = time.monotonic() - begun
            over.set()
            watching.join()
            grown = [_peak(process) - was for process, was in zip(processes, before, strict=True)]
            self.report.lines.append(
                f"{what}: {took:.1f} s, health check at most {max(waits) * 1e3:.0f} ms; memory: "
                f"server +{grown[0] >> 20} MiB, a rank +{max(grown[1:]) >> 20} MiB"
                f"{'; ' if notes else ''}{', '.join(notes)}"
            )
            print(self.report.lines[-1], flush=True)


def _reset_peak(process: int) -> int:
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/clear_refs").write_text("5")
    return _peak(process)


def _peak(process: int) -> int:
    """Return the peak of resident bytes, 0 of a process that has ended."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    return 0


def tensor_body(values: Any, shape: list[int]) -> bytes:
    entry = {"name": "x", "datatype": "FP32", "shape": shape, "data": values}
    return json.dumps({"inputs": [entry]}).encode()


def text_body(prompt: Any, **more: Any) -> bytes:
    return json.dumps({"model": "d", "prompt": prompt, "temperature": 0, **more}).encode()


def long_json(target: Target) -> None:
    size = target.mib << 20
    count = (size - 200) // 6
    body = tensor_body([], [1, count]).replace(b"[]", b"[" + b"0.25, " * (count - 1) + b"0.25]")
    with target.watched(f"{len(body) >> 20} MiB of JSON") as notes:
        notes.append(f"status {target.ask(_INFER, body)[0]}")


def bombs(target: Target) -> None:
    size = target.mib << 20
    texts = {
        "empty lists": b"[],",
        "nested lists": b"[",
        "lists of one": b"[1],",
        "objects": b'{"":0},',
        "strings": b'"a",',
    }
    for name, piece in texts.items():
        inner = piece * (size // len(piece))
        closed = b"[" + inner.rstrip(b",") + b"]"
        body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":' + closed + b"}]}"
        with target.watched(f"{len(body) >> 20} MiB of {name}") as notes:
            notes.append(f"status {target.ask(_INFER, body)[0]}")


def token_bomb(target: Target) -> None:
    piece = b"1," * (target.mib << 19)
    body = b'{"model":"d","prompt":[' + piece + b'"a"]}'
    with target.watched(f"{len(body) >> 20} MiB of tokens, and a string") as notes:
        notes.append(f"status {target.ask(_TEXT, body)[0]}")


def long_prompt(target: Target) -> None:
    body = text_body("t1 " * ((target.mib << 20) // 9))
    with target.watched(f"a prompt of {len(body) >> 20} MiB") as notes:
        notes.append(f"status {target.ask(_TEXT, body)[0]}")


def unfinished_bodies(target: Target) -> None:
    size = target.mib << 20
    head = f"POST {_INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {size + 1}\r\n\r\n".encode()
    refused, body = 0, bytes(size)
    what = f"30 unfinished bodies of {target.mib} MiB"
    with target.watched(what) as notes, contextlib.ExitStack() as stack:
        for _ in range(30):
            place = ("127.0.0.1", target.server.http)
            client = stack.enter_context(socket.create_connection(place, timeout=20))
            try:
                client.sendall(head + body)
                client.settimeout(0.05)
                refused += client.recv(100).startswith(b"HTTP/1.1 503")
            except TimeoutError:
                pass  # the server keeps it
            except OSError:
                refused += 1
        notes.append(f"{refused} refused, a request meanwhile: {target.infer()[0]}")


def many_prompts(target: Target) -> None:
    prompts = [[5] * 500] * 2000
    with target.watched("2,000 prompts of 500 tokens") as notes:
        notes.append(f"status {target.ask(_TEXT, text_body(prompts, max_tokens=4))[0]}")


_NUMBERS: tuple[dict[str, Any], ...] = (
    {"repetition_penalty": 5e-324},
    {"repetition_penalty": 1e-9, "temperature": 1},
    {"temperature": 5e-324},
    {"top_p": 5e-324, "temperature": 1},
    {"seed": -(1 << 63), "temperature": 1},
    {"seed": 1 << 64},
    {"stop_token_ids": [1 << 63]},
    {"stop_token_ids": [10**4000]},
    {"logit_bias": {"999999999": 100}},
    {"logit_bias": {"3": 100, "7": -100}, "presence_penalty": 2, "repetition_penalty": 0.01},
    {"prompt": [1 << 63]},
    {"max_tokens": 1 << 64},
)


def numbers_at_the_limits(target: Target) -> None:
    """Ask for options that overflow, next to a text that goes on."""
    with target.watched(f"{len(_NUMBERS)} requests with numbers at their limits") as notes:
        bodies = [text_body(**{"prompt": [3, 7, 1], "max_tokens": 8, **one}) for one in _NUMBERS]
        counts = Counter(target.ask(_TEXT, body)[0] for body in bodies)
        notes.append(f"statuses {dict(sorted(counts.items()))}")


def long_prompts(target: Target) -> None:
    """Send sixteen long prompts from as many clients; a short one does not wait for all of them."""
    bodies = [text_body([n] * 900, max_tokens=4) for n in range(16)]
    _crowd(target, "16 clients with 900 tokens each", _TEXT, bodies)


def grammars(target: Target) -> None:
    """Send forty JSON schemas from as many clients; texts without one go on."""
    bodies = []
    for client in range(40):
        properties = {f"f{client}_{n}": {"type": "string", "maxLength": n} for n in range(200)}
        schema = {"type": "object", "properties": properties, "required": [*properties]}
        form = {"type": "json_schema", "json_schema": {"schema": schema}}
        body = {"model": "l", "prompt": "a", "max_tokens": 4, "response_format": form}
        bodies.append(json.dumps(body).encode())
    _crowd(target, "40 clients with a schema each", _TEXT, bodies)


def _crowd(target: Target, what: str, path: str, bodies: list[bytes]) -> None:
    """Send requests at once, and measure a short text that comes after them."""
    with target.watched(what) as notes, ThreadPoolExecutor(len(bodies)) as threads:
        asked = [threads.submit(target.ask, path, body) for body in bodies]
        time.sleep(0.2)
        begun = time.monotonic()
        status = target.text()[0]
        took, left = time.monotonic() - begun, sum(not one.done() for one in asked)
        notes.append(f"a short text: {status} after {took:.2f} s, {left} are not answered yet")
        statuses = Counter(one.result()[0] for one in asked)
        notes.append(f"answers {dict(statuses)}")
        if {status, *statuses} != {200}:
            target.report.failures.append(f"{what}: {notes[-2:]}")


def leave_a_text(target: Target) -> None:
    """Leave 60 prompts that are not streamed; the next text is answered at once."""
    body = text_body([[5] * 600] * 60, max_tokens=20)
    head = f"POST {_TEXT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with target.watched("60 prompts of 600 tokens, left after 1 s") as notes:
        with socket.create_connection(("127.0.0.1", target.server.http)) as client:
            client.sendall(head + body)
            time.sleep(1.0)
        begun = time.monotonic()
        notes.append(f"the next text: {target.text()[0]} after {time.monotonic() - begun:.2f} s")


def stop_a_rank(target: Target) -> None:
    _hurt_a_rank(target, signal.SIGSTOP, "a stopped rank")


def kill_a_rank(target: Target) -> None:
    _hurt_a_rank(target, signal.SIGKILL, "a killed rank")


def _hurt_a_rank(target: Target, number: signal.Signals, what: str) -> None:
    with target.watched(what) as notes:
        os.kill(target.random.choice(target.ranks()), number)
        begun = time.monotonic()
        statuses = [ask()[0] for ask in (target.infer, target.text, target.letters)]
        notes.append(f"answers {statuses}")
        until = begun + READY_S
        while target.ask("/v2/health/ready")[0] != 200 and time.monotonic() < until:
            time.sleep(0.05)
        notes.append(f"ready after {time.monotonic() - begun:.1f} s")


ATTACKS: tuple[Callable[[Target], None], ...] = (
    long_json, bombs, token_bomb, long_prompt, unfinished_bodies, many_prompts, leave_a_text,
    numbers_at_the_limits, long_prompts, grammars, stop_a_rank, kill_a_rank,
)  # fmt: skip


def end_with_a_stopped_rank(target: Target) -> None:
    """SIGTERM ends the server, whose ranks are stopped, soon after its grace period."""
    ranks = target.ranks()
    for rank in ranks:
        os.kill(rank, signal.SIGSTOP)
    asking = threading.Thread(target=target.infer)
    asking.start()
    time.sleep(0.5)
    begun = time.monotonic()
    target.server.process.send_signal(signal.SIGTERM)
    try:
        target.server.process.communicate(timeout=GRACE_S + 30)
    except subprocess.TimeoutExpired:
        target.report.failures.append("SIGTERM did not end the server")
        return
    asking.join()
    took = time.monotonic() - begun
    line = f"SIGTERM with stopped ranks and --grace {GRACE_S:g}: ended after {took:.1f} s"
    target.report.lines.append(line)
    print(line, flush=True)
    if any(Path(f"/proc/{rank}").exists() for rank in ranks):
        target.report.failures.append("ranks are left")


def attack(
    folder: Path,
    attacks: tuple[Callable[[Target], None], ...],
    rounds: int,
    seed: int,
    mib: int,
    timeout_s: float,
) -> Report:
    """Return what all attacks came to."""
    expected, tokens = _planned(folder)
    flags = {"--timeout": timeout_s, "--stall": STALL_S, "--grace": GRACE_S, "--threads": 1}
    plans = [str(folder / "m"), str(folder / "d"), f"l={folder / 'l' / 'plan'}"]
    command = [sys.executable, "-c", _SERVE, *plans, "--no-grpc"]
    command += ["--port", "0", *(str(one) for pair in flags.items() for one in pair)]
    with started([*command, "--no-access-log"]) as server:
        log = threading.Thread(target=server.process.stderr.read)  # its pipe must not fill
        log.start()
        target = Target(server, expected, tokens, mib)
        target.random = random.Random(seed)
        target.check("at first")
        for _ in range(rounds):
            for one in target.random.sample(attacks, len(attacks)):
                one(target)
                target.check(one.__name__)
        end_with_a_stopped_rank(target)
    log.join()
    return target.report


def _planned(folder: Path) -> tuple[Any, list[int]]:
    """Make both plans; returns what they answer."""
    from tensoropt.compiler.cli.opt import main as compile_model

    perceptron = Perceptron(folder, "n")
    perceptron.plan(folder / "m")
    write_tokenizer(folder / "tokenizer.json")
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": CONTEXT}))
    handmade_decoder.CONTEXT = CONTEXT
    model = handmade_decoder.write_decoder(folder / "d.onnx", layers=1)
    assert compile_model([str(model), *_PLANNED, "-o", str(folder / "d")]) == 0
    (folder / "l").mkdir()
    letters_plan(folder / "l")
    expected = np.maximum(_X @ perceptron.w1, 0) @ perceptron.w2
    return expected, handmade_decoder.greedy(model, [3, 7, 1], 6)


def main() -> int:
    """Make all attacks, and print what they came to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mib", type=int, default=60, help="of large bodies (60)")
    parser.add_argument("--timeout", type=float, default=30.0, help="of requests (30)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        given = arguments.rounds, arguments.seed, arguments.mib, arguments.timeout
        report = attack(Path(folder), ATTACKS, *given)
    counts = ", ".join(f"{count} of {status}" for status, count in sorted(report.statuses.items()))
    print(f"{len(report.lines)} attacks, answers by status: {counts}")
    print(f"{len(report.failures)} failures", *report.failures, sep="\n")
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())

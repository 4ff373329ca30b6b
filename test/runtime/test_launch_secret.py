"""A job's key and identity: strangers get nothing, ranks of two jobs do not mix."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from callers import RANK, proof
from launched import LIMIT_S, RUN, ends, free_port, run, start_rank, variables

KEY = "correct horse battery staple"
OTHER = "incorrect horse battery staple"
KEYED = {"TENSOROPT_JOB_KEY": KEY}


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def first(port: int) -> Iterator[subprocess.Popen[str]]:
    """Rank 0 of 2, that waits for the other."""
    process = start_rank(RANK, variables(0, 2, port, **KEYED))
    yield process
    process.kill()
    process.communicate()


def whole(first: subprocess.Popen[str], port: int) -> None:
    """The real rank 1 comes, and the job is done."""
    second = start_rank(RANK, variables(1, 2, port, **KEYED))
    assert ends([first, second]) == [(0, "2\n", "")] * 2


def test_a_job_with_a_key() -> None:
    assert run(3, RANK, **KEYED) == [(0, "3\n", "")] * 3


@pytest.mark.parametrize("key", [OTHER, ""])
def test_another_key(first: subprocess.Popen[str], port: int, key: str) -> None:
    second = start_rank(RANK, variables(1, 2, port, TENSOROPT_JOB_KEY=key))
    status, out, err = ends([second])[0]
    text = f"error: refused by rank 0 at 127.0.0.1:{port}: its TENSOROPT_JOB_KEY is not that of"
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(text)
    assert KEY not in err and (not key or key not in err)
    whole(first, port)


def test_a_key_that_is_short(port: int) -> None:
    second = start_rank(RANK, variables(1, 2, port, TENSOROPT_JOB_KEY="secret"))
    text = "error: TENSOROPT_JOB_KEY: expected at least 16 characters, got: 6\n"
    assert ends([second]) == [(1, "", text)]


def test_who_has_heard_a_rank_is_no_rank(call, first: subprocess.Popen[str], port: int) -> None:
    """What was said on one connection is worth nothing on another."""
    nonce = secrets.token_hex(16)
    hello = f"tensoropt 2 control 1 2 machine - - {nonce}"
    heard = call(port)
    heard.say(hello)
    word = f"proof {proof(KEY, 'rank', hello, heard.line().split()[1])}"
    heard.say(word)
    assert heard.line().startswith("accepted ")
    heard.hang_up()
    replayed = call(port)
    replayed.say(f"{hello}\n{word}")
    assert replayed.line().startswith("challenge ")
    assert replayed.line().startswith("refused its TENSOROPT_JOB_KEY is not that of rank 0")
    assert replayed.line() == ""
    whole(first, port)


def test_the_hub_s_own_proof_is_no_rank_s(call, first: subprocess.Popen[str], port: int) -> None:
    caller = call(port)
    hello = f"tensoropt 2 control 1 2 machine - - {secrets.token_hex(16)}"
    caller.say(hello)
    caller.say(f"proof {proof(KEY, 'hub', hello, caller.line().split()[1])}")
    assert caller.line().startswith("refused its TENSOROPT_JOB_KEY")
    whole(first, port)


def test_who_says_nothing_gets_nothing(call, first: subprocess.Popen[str], port: int) -> None:
    """More connections than the hub keeps, half of them open at one end only, one slow."""
    callers = [call(port) for _ in range(150)]
    for caller in callers[::2]:
        caller.socket.shutdown(1)
    for letter in "tensoropt 2":
        callers[1].socket.sendall(letter.encode())
        time.sleep(0.02)
    whole(first, port)
    assert all(caller.line() == "" for caller in callers[::2])


def test_who_does_not_know_the_key_is_no_rank_0() -> None:
    """A stranger that got the port before rank 0 did."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        rank = start_rank(RANK, variables(1, 2, port, **KEYED))
        server.settimeout(LIMIT_S)
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as lines:
            lines.readline()
            connection.sendall(b"challenge 00\n")
            lines.readline()
            connection.sendall(b"accepted token " + b"0" * 64 + b"\n")
            text = f"error: 127.0.0.1:{port} is no rank 0 of this job: it does not know TENSOROPT_"
            status, _, err = ends([rank])[0]
    assert (status, err.startswith(text)) == (1, True)


def test_two_jobs_on_one_port(call, plan: Path, port: int) -> None:
    """The second says what is wrong, on each rank; the first goes on."""
    first = start_rank([*RUN, plan], variables(0, 2, port, **KEYED))
    call(port).hang_up()
    others = [
        start_rank([*RUN, plan], variables(rank, 2, port, TENSOROPT_JOB_KEY=OTHER))
        for rank in (0, 1)
    ]
    taken, refused = ends(others)
    in_use = f"error: port {port} cannot be listened on: Address already in use, expected a free"
    assert (taken[0], taken[2].startswith(in_use)) == (1, True)
    text = f"error: rank 1: refused by rank 0 at 127.0.0.1:{port}: its TENSOROPT_JOB_KEY is not"
    assert (refused[0], refused[2].startswith(text)) == (1, True)
    second = start_rank([*RUN, plan], variables(1, 2, port, **KEYED))
    assert [status for status, *_ in ends([first, second])] == [0, 0]


@pytest.mark.parametrize(
    ("what", "flags"), [("plan", []), ("command", ["--runs", "3"]), ("run", [])]
)
def test_ranks_of_different_jobs(
    hanging: Path, plan: Path, port: int, tmp_path: Path, what: str, flags: list[str]
) -> None:
    """Without keys, but with another plan, other flags or another run of torchrun's."""
    copied = shutil.copytree(plan, tmp_path / "elsewhere")
    first = start_rank([*RUN, plan], variables(0, 2, port, TORCHELASTIC_RUN_ID="a"))
    other = start_rank(
        [*RUN, hanging if what == "plan" else copied, *flags],
        variables(1, 2, port, TORCHELASTIC_RUN_ID="b" if what == "run" else "a"),
    )
    status, _, err = ends([other])[0]
    refused = f"rank 1 has another {what} than rank 0, expected one job on one port\n"
    assert (status, err) == (
        1,
        f"error: rank 1: refused by rank 0 at 127.0.0.1:{port}: {refused}",
    )
    second = start_rank([*RUN, copied], variables(1, 2, port, TORCHELASTIC_RUN_ID="a"))
    assert [status for status, *_ in ends([first, second])] == [0, 0]


@pytest.mark.parametrize(("key", "warned"), [("", True), (KEY, False)])
def test_a_network_without_a_key(port: int, key: str, warned: bool) -> None:
    others = {"MASTER_ADDR": "0.0.0.0", "TENSOROPT_JOB_KEY": key}
    text = f"warning: whoever reaches port {port} can join this job, expected TENSOROPT_JOB_KEY"
    first, second = (start_rank(RANK, variables(rank, 2, port, **others)) for rank in (0, 1))
    (status, out, err), other = ends([first, second])
    assert (status, out, other) == (0, "2\n", (0, "2\n", ""))
    assert err == (f"{text} on all ranks\n" if warned else "")

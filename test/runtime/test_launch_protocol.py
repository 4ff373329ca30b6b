"""Who else may call at rank 0's port, and what they are told; a job where ranks are missing."""

from __future__ import annotations

import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from callers import RANK, Caller
from launched import ends, free_port, run, start_rank, variables


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def first(port: int) -> Iterator[subprocess.Popen[str]]:
    """Rank 0 of 2, that waits for the other."""
    process = start_rank(RANK, variables(0, 2, port))
    yield process
    process.kill()
    process.communicate()


def whole(first: subprocess.Popen[str], port: int) -> None:
    """The real rank 1 comes, and the job is done."""
    second = start_rank(RANK, variables(1, 2, port))
    assert ends([first, second]) == [(0, "2\n", "")] * 2


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "refused line"),
        (b"\x00\xff\x16\x03\x01\n", "refused line"),
        (b"x" * 600, "refused line"),
        (b"tensoropt 1 control 1 2 m\n", "refused version"),
        (b"tensoropt \x1b[2J control\n", "refused version"),
    ],
)
def test_strangers_are_refused(call, asked: int, sent: bytes, answer: str) -> None:
    caller = call(asked)
    caller.say(sent)
    assert caller.line() == answer
    assert caller.line() == ""


@pytest.mark.parametrize(
    ("hello", "answer"),
    [
        (("control", "one", 2), "denied a first line that cannot be read"),
        (("queen", 1, 2), "denied a first line that cannot be read"),
        (("control", 1, ""), "denied a first line that cannot be read"),
        (("control", 1, 3), "denied rank 1 has 3 ranks, expected 2 as on rank 0"),
        (("control", 2, 2), "denied rank 2 does not exist, expected below 2"),
        (("control", -1, 2), "denied rank -1 does not exist, expected below 2"),
        (("control", 0, 2), "denied rank 0 is there already, expected every rank once"),
        (("pmi", 1, 2), "denied rank 1 is there already"),
    ],
)
def test_ranks_that_are_no_rank_are_refused(
    call, asked: int, hello: tuple[str, int, int], answer: str
) -> None:
    caller = call(asked)
    assert caller.introduce(*hello).startswith(answer)
    assert caller.line() == ""


@pytest.fixture(scope="module")
def asked() -> Iterator[int]:
    """The port of a rank 0 that waits; strangers have not disturbed it in the end."""
    port = free_port()
    process = start_rank(RANK, variables(0, 2, port, TENSOROPT_START_TIMEOUT_S="120"))
    yield port
    whole(process, port)


def test_silent_strangers_do_not_disturb(call, first: subprocess.Popen[str], port: int) -> None:
    callers = [call(port) for _ in range(20)]
    for caller in callers[::2]:
        caller.hang_up()
    whole(first, port)


def test_noise_does_not_disturb(call, first: subprocess.Popen[str], port: int) -> None:
    noise = random.Random(0)
    for _ in range(300):
        caller = call(port)
        start = noise.choice((b"", b"tensoropt 3 ", b"tensoropt 3 control 9 2 m - - 0\n"))
        caller.say(start + noise.randbytes(noise.randrange(200)) + noise.choice((b"", b"\n")))
        if noise.random() < 0.5:
            caller.hang_up()
    whole(first, port)


def test_a_rank_may_come_again_before_the_start(
    call, first: subprocess.Popen[str], port: int
) -> None:
    caller = call(port)
    assert caller.introduce("control", 1, 2).startswith("accepted ")
    caller.hang_up()
    whole(first, port)


def test_a_rank_comes_twice(port: int) -> None:
    first = start_rank(RANK, variables(0, 3, port))
    one, other = (start_rank(RANK, variables(1, 3, port)) for _ in range(2))
    while one.poll() is None and other.poll() is None:
        time.sleep(0.02)
    refused, there = (one, other) if one.poll() is not None else (other, one)
    error = f"error: refused by rank 0 at 127.0.0.1:{port}: rank 1 is there already, expected every"
    assert ends([refused])[0][2].startswith(error)
    last = start_rank(RANK, variables(2, 3, port))
    assert ends([first, there, last]) == [(0, "3\n", "")] * 3


class Impostor:
    """A second rank that has come by both its connections."""

    def __init__(self, call: Callable[[int], Caller], port: int) -> None:
        self.control, self.pmi = call(port), call(port)
        token = self.control.introduce("control", 1, 2).split()[1]
        assert self.pmi.introduce("pmi", 1, 2, token=token).startswith("accepted ")
        assert self.control.line().startswith("ready ")


MANY = "\n".join(f"cmd=put kvsname=k key={i} value={'v' * 4000}" for i in range(200))


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ("cmd=spawn nprocs=1000", "asks for what is not served here: spawn"),
        ("nonsense", "asks for what is not served here: "),
        ("cmd=put kvsname=k key= value=v", "puts a key or value of no valid length"),
        (f"cmd=put kvsname=k key=k value={'v' * 5000}", "puts a key or value of no valid length"),
        ("cmd=barrier_in\ncmd=barrier_in", "enters a barrier twice"),
        ("cmd=abort exitcode=1", "called MPI_Abort"),
        ("v" * 20000, "sends what is no line"),
        (
            "\n".join(f"cmd=put kvsname=k key={i} value={'v' * 4000}" for i in range(200)),
            "puts more",
        ),
    ],
)
def test_what_a_rank_may_not_say(
    call, first: subprocess.Popen[str], port: int, sent: str, why: str
) -> None:
    impostor = Impostor(call, port)
    impostor.pmi.say(sent)
    status, out, err = ends([first])[0]
    assert (status, out) == (1, "")
    assert err.startswith(f"error: rank 1 of 2 {why}")
    assert err.count("\n") == 1


def test_a_rank_says_why(call, first: subprocess.Popen[str], port: int) -> None:
    impostor = Impostor(call, port)
    impostor.control.say("fail its disk is full")
    assert impostor.control.line() == "end rank 1 of 2: its disk is full"
    assert ends([first]) == [(1, "", "error: rank 1 of 2: its disk is full\n")]


def test_a_rank_does_not_come() -> None:
    port = free_port()
    short = {"TENSOROPT_START_TIMEOUT_S": "1.5"}
    found = [start_rank(RANK, variables(rank, 4, port, **short)) for rank in (0, 2)]
    text = "error: ranks 1, 3 of 4 did not come within 1.5 s\n"
    assert ends(found) == [(1, "", text)] * 2


def test_refusals_are_remembered(call, port: int) -> None:
    first = start_rank(RANK, variables(0, 2, port, TENSOROPT_START_TIMEOUT_S="1.5"))
    call(port).introduce("control", 1, 8)
    text = "error: rank 1 of 2 did not come within 1.5 s (refused: rank 1 has 8 ranks, expected 2"
    assert ends([first])[0][2].startswith(text)


@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1", "does not answer: Connection refused"), ("no.host.invalid", "cannot be resol")],
)
def test_rank_0_does_not_come(port: int, address: str, why: str) -> None:
    others = {"MASTER_ADDR": address, "TENSOROPT_START_TIMEOUT_S": "0.5"}
    status, _, err = ends([start_rank(RANK, variables(1, 2, port, **others))])[0]
    assert status == 1
    assert err.startswith(f"error: rank 0 at {address}:{port} {why}")
    assert err.endswith("(tried for 1 s)\n")


def test_the_port_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        status, _, err = ends([start_rank(RANK, variables(0, 2, port))])[0]
    assert (status, err) == (
        1,
        f"error: port {port} cannot be listened on: Address already in use, "
        "expected a free one in MASTER_PORT or TENSOROPT_PORT\n",
    )


def test_a_port_of_its_own(port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = str(server.getsockname()[1])
        others = {"MASTER_PORT": taken, "TENSOROPT_PORT": str(port)}
        assert run(2, RANK, **others) == [(0, "2\n", "")] * 2


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"TENSOROPT_START_TIMEOUT_S": "soon"},
            "TENSOROPT_START_TIMEOUT_S: expected seconds",
        ),
        (
            {"RANK": "", "WORLD_SIZE": "", "PMIX_RANK": "0"},
            "started by Open MPI or by srun ",
        ),
    ],
)
def test_starts_that_are_wrong(port: int, environment: dict[str, str], message: str) -> None:
    all_of_them = variables(1, 2, port, **environment)
    if "PMIX_RANK" in environment:
        del all_of_them["MASTER_ADDR"]
    status, _, err = ends([start_rank(RANK, all_of_them)])[0]
    assert (status, err.startswith(f"error: {message}")) == (1, True), err

"""The secret and the identity of a job: strangers get nothing, ranks of two jobs do not mix."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from callers import RANK, SECRET, hello_of, proof
from launched import LIMIT_S, RUN, ends, free_port, run, start_rank, variables

OTHER = "incorrect horse battery staple"


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


def another(port: int, source: str) -> str:
    """What a rank says whose secret, of this source, is not that of rank 0."""
    return (
        f"the secret of rank 0 at 127.0.0.1:{port} is another one, expected the same "
        "TENSOROPT_SECRET, or the same ~/.config/tensoropt/secret, on every machine, got: that of "
        f"{source}\n"
    )


@pytest.fixture
def file(tmp_path: Path) -> dict[str, str]:
    """Variables of ranks whose secret is in a file, which is not there yet."""
    return {"TENSOROPT_SECRET": "", "XDG_CONFIG_HOME": str(tmp_path)}


def test_a_secret_in_a_file(file: dict[str, str], tmp_path: Path) -> None:
    """Nobody has made it: one of the ranks does, and all find the same."""
    assert run(3, RANK, **file) == [(0, "3\n", "")] * 3
    (made,) = (tmp_path / "tensoropt").iterdir()
    assert (made.name, made.stat().st_mode & 0o7777) == ("secret", 0o600)
    assert len(made.read_text()) == 65


def test_a_file_that_others_may_read(port: int, file: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "tensoropt" / "secret"
    path.parent.mkdir()
    path.write_text(OTHER)
    path.chmod(0o644)
    text = f"error: {path}: others may read or change it, expected mode 600 (chmod 600 {path}), "
    found = start_rank(RANK, variables(1, 2, port, **file))
    assert ends([found]) == [(1, "", f"{text}got: 644\n")]


@pytest.mark.parametrize("source", ["TENSOROPT_SECRET", "file"])
def test_another_secret(
    first: subprocess.Popen[str], port: int, file: dict[str, str], tmp_path: Path, source: str
) -> None:
    own = file if source == "file" else {"TENSOROPT_SECRET": OTHER}
    second = start_rank(RANK, variables(1, 2, port, **own))
    path = str(tmp_path / "tensoropt/secret") if source == "file" else source
    assert ends([second]) == [(1, "", f"error: {another(port, path)}")]
    whole(first, port)


def test_rank_0_tells_of_another_secret(call, port: int) -> None:
    """Noise that comes later does not hide it."""
    first = start_rank(RANK, variables(0, 2, port, TENSOROPT_START_TIMEOUT_S="1.5"))
    assert call(port).introduce("control", 1, 2, key=OTHER) == "refused secret"
    stranger = call(port)
    stranger.say("GET / HTTP/1.1")
    assert stranger.line() == "refused line"
    text = "error: rank 1 of 2 did not come within 1.5 s (refused: a rank whose secret is not that "
    assert ends([first]) == [(1, "", f"{text}of rank 0)\n")]


def test_a_secret_that_is_short(port: int) -> None:
    second = start_rank(RANK, variables(1, 2, port, TENSOROPT_SECRET="secret"))
    text = "error: TENSOROPT_SECRET: expected 16 to 4096 characters, got: 6\n"
    assert ends([second]) == [(1, "", text)]


def test_who_has_heard_a_rank_is_no_rank(call, first: subprocess.Popen[str], port: int) -> None:
    """What was said on one connection is worth nothing on another."""
    hello = hello_of(port, "control", 1, 2)
    heard = call(port)
    heard.say(hello)
    word = f"proof {proof(SECRET, 'rank', hello, heard.line().split()[1])}"
    heard.say(word)
    assert heard.line().startswith("accepted ")
    heard.hang_up()
    replayed = call(port)
    replayed.say(f"{hello}\n{word}")
    assert replayed.line().startswith("challenge ")
    assert replayed.line() == "refused secret"
    assert replayed.line() == ""
    whole(first, port)


def test_the_hub_s_own_proof_is_no_rank_s(call, first: subprocess.Popen[str], port: int) -> None:
    caller = call(port)
    hello = hello_of(port, "control", 1, 2)
    caller.say(hello)
    caller.say(f"proof {proof(SECRET, 'hub', hello, caller.line().split()[1])}")
    assert caller.line() == "refused secret"
    whole(first, port)


def test_who_says_nothing_gets_nothing(call, first: subprocess.Popen[str], port: int) -> None:
    """More connections than the hub keeps, half of them open at one end only, one slow."""
    callers = [call(port) for _ in range(300)]
    for caller in callers[::2]:
        caller.socket.shutdown(1)
    for letter in "tensoropt 2":
        callers[1].socket.sendall(letter.encode())
        time.sleep(0.02)
    whole(first, port)
    assert all(caller.line() == "" for caller in callers[::2])


def test_who_never_stops_talking_is_cut_off(call, first: subprocess.Popen[str], port: int) -> None:
    """Far more than what the kernels on the way would keep."""
    caller = call(port)
    with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
        for _ in range(1 << 10):
            caller.say(b"x" * (1 << 20))
    whole(first, port)


def test_nobody_is_let_in_once_all_are_there(call, first: subprocess.Popen[str], port: int) -> None:
    control, pmi = call(port), call(port)
    token = control.introduce("control", 1, 2).split()[1]
    silent = call(port)
    assert pmi.introduce("pmi", 1, 2, token=token).startswith("accepted ")
    assert control.line().startswith("ready ")
    assert silent.line() == ""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """A stranger that got the port before rank 0 did."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LIMIT_S)
        yield server


def test_who_does_not_know_the_secret_is_no_rank_0(taken: socket.socket) -> None:
    port = taken.getsockname()[1]
    rank = start_rank(RANK, variables(1, 2, port))
    connection, _ = taken.accept()
    with connection, connection.makefile("rb") as lines:
        lines.readline()
        connection.sendall(b"challenge 00\n")
        lines.readline()
        connection.sendall(b"accepted " + b"0" * 64 + b" token\n")
        text = f"error: 127.0.0.1:{port} is no rank 0 of this job: it does not know the secret\n"
        assert ends([rank]) == [(1, "", text)]


def test_who_hands_on_to_another_job_is_no_rank_0(
    call, first: subprocess.Popen[str], port: int, taken: socket.socket
) -> None:
    """A stranger lets a rank talk to rank 0 of another job of the same person."""
    port_of_rank = taken.getsockname()[1]
    rank = start_rank(RANK, variables(1, 2, port_of_rank))
    connection, _ = taken.accept()
    hub = call(port).socket
    with connection:
        for pair in ((connection, hub), (hub, connection)):
            threading.Thread(target=hand_on, args=pair, daemon=True).start()
        text = "rank 1 has another port than rank 0, expected one job on one port\n"
        refused = f"error: refused by rank 0 at 127.0.0.1:{port_of_rank}: {text}"
        assert ends([rank]) == [(1, "", refused)]
    whole(first, port)


def hand_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


def test_two_jobs_on_one_port(call, plan: Path, port: int) -> None:
    """The second says what is wrong, on each rank; the first goes on."""
    first = start_rank([*RUN, plan], variables(0, 2, port))
    call(port).hang_up()
    others = [
        start_rank([*RUN, plan], variables(rank, 2, port, TENSOROPT_SECRET=OTHER))
        for rank in (0, 1)
    ]
    taken, refused = ends(others)
    in_use = f"error: port {port} cannot be listened on: Address already in use, expected a free"
    assert (taken[0], taken[2].startswith(in_use)) == (1, True)
    assert refused == (1, "", f"error: rank 1: {another(port, 'TENSOROPT_SECRET')}")
    second = start_rank([*RUN, plan], variables(1, 2, port))
    assert [status for status, *_ in ends([first, second])] == [0, 0]


@pytest.mark.parametrize(
    ("what", "flags"), [("plan", []), ("command", ["--runs", "3"]), ("run", [])]
)
def test_ranks_of_different_jobs(
    hanging: Path, plan: Path, port: int, tmp_path: Path, what: str, flags: list[str]
) -> None:
    """With one secret, but another plan, other flags or another run of torchrun's."""
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


def test_ranks_of_one_machine_listen_to_it_alone(hanging: Path) -> None:
    """Those that tensoropt-run starts: MPI would take every network that it finds."""
    job = subprocess.Popen([*RUN, hanging], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
    try:
        end = time.monotonic() + LIMIT_S
        while len(found := [listening(pid) for pid in children.read_text().split()]) < 3 or (
            sum(map(bool, found)) < 2
        ):
            assert job.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        assert {address for each in found for address in each} == {"127.0.0.1"}
    finally:
        job.terminate()
        job.communicate()


def listening(pid: str) -> list[str]:
    """The addresses of IPv4 and IPv6 that a process listens at, the latter in hexadecimal."""
    with suppress(OSError):
        sockets = {path.readlink().name for path in Path(f"/proc/{pid}/fd").iterdir()}
        rows = [
            row.split()
            for name in ("tcp", "tcp6")
            for row in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        ]
        found = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
        return [readable(address.partition(":")[0]) for address in found]
    return []


def readable(address: str) -> str:
    """An address of IPv4 as people write it."""
    return ".".join(map(str, bytes.fromhex(address)[::-1])) if len(address) == 8 else address

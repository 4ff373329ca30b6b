"""Who calls at rank 0's port, by hand: the protocol that ranks meet by, said again in Python."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import sys
import time

from launched import LIMIT_S

CODE = (
    "import sys\n"
    "from tensoropt.runtime.support.errors import UserError\n"
    "from tensoropt.runtime.launch.world import world\n"
    "try:\n"
    "    print(world().allreduce(1))\n"
    "except UserError as error:\n"
    "    sys.exit(f'error: {error}')\n"
)
SECRET = os.environ["TENSOROPT_SECRET"]
RANK = [sys.executable, "-c", CODE]


def proof(key: str, who: str, hello: str, nonce: str, said: str = "") -> str:
    """What only those can say who know the key."""
    message = f"{who}\n{hello}\n{nonce}\n{said}".encode()
    return hmac.new(key.encode(), message, hashlib.sha256).hexdigest()


def hello_of(port: int, role: str, rank: object, size: object, *, job: str = "", token: str = "-"):
    """The first line of a rank that is to meet others at this port."""
    parts = f"{job},port={port}".lstrip(",")
    return f"tensoropt 3 {role} {rank} {size} machine {parts} {token} {secrets.token_hex(16)}"


class Caller:
    """A connection to rank 0's port, with lines both ways."""

    def __init__(self, port: int) -> None:
        self.port = port
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < end
                time.sleep(0.02)
        self._file = self.socket.makefile("rb")

    def say(self, text: str | bytes) -> None:
        self.socket.sendall(text if isinstance(text, bytes) else f"{text}\n".encode())

    def line(self) -> str:
        """The next line, empty where the connection was closed."""
        try:
            return self._file.readline().decode().rstrip("\n")
        except ConnectionResetError:
            return ""

    def introduce(
        self,
        role: str,
        rank: object,
        size: object,
        *,
        job: str = "",
        token: str = "-",
        key: str = SECRET,
    ) -> str:
        """Say who this is and prove it; returns the hub's answer without its proof."""
        hello = hello_of(self.port, role, rank, size, job=job, token=token)
        self.say(hello)
        verb, challenge = self.line().split(maxsplit=1)
        if verb != "challenge":
            return f"{verb} {challenge}"
        self.say(f"proof {proof(key, 'rank', hello, challenge)}")
        answer = self.line()
        if answer.startswith("refused "):
            return answer
        verb, proved, rest = answer.split(maxsplit=2)
        assert proved == proof(key, "hub", hello, challenge, f"{verb} {rest}")
        return f"{verb} {rest}"

    def hang_up(self) -> None:
        self._file.close()
        self.socket.close()

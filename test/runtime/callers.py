"""Who calls at rank 0's port, by hand: the protocol that ranks meet by, said again in Python."""

from __future__ import annotations

import hashlib
import hmac
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
RANK = [sys.executable, "-c", CODE]


def proof(key: str, who: str, hello: str, nonce: str) -> str:
    """What only those can say who know the key."""
    message = f"{who}\n{hello}\n{nonce}".encode()
    return hmac.new(key.encode(), message, hashlib.sha256).hexdigest()


class Caller:
    """A connection to rank 0's port, with lines both ways."""

    def __init__(self, port: int) -> None:
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
        self, role: str, rank: int, size: int, *, job: str = "-", token: str = "-", key: str = ""
    ) -> str:
        """Say who this is and prove it; returns the hub's answer, after checking its proof."""
        nonce = secrets.token_hex(16)
        hello = f"tensoropt 2 {role} {rank} {size} machine {job} {token} {nonce}"
        self.say(hello)
        verb, challenge = self.line().split(maxsplit=1)
        if verb != "challenge":
            return f"{verb} {challenge}"
        self.say(f"proof {proof(key, 'rank', hello, challenge)}")
        answer = self.line()
        if answer.startswith("accepted"):
            assert answer.split()[2] == proof(key, "hub", hello, challenge)
        return answer

    def hang_up(self) -> None:
        self._file.close()
        self.socket.close()

"""API keys of clients."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["KEY_HEADER", "WRONG_S", "Keys", "read_keys"]

KEY_HEADER = "authorization"
"""The HTTP header, and the gRPC metadata key, of a client's key: `Bearer KEY`."""

WRONG_S = 1.0
"""Seconds after which a wrong key is refused, so that guessing takes long."""

_MOST_WAITING = 256


class Keys:
    """The keys that a server accepts; without any, it accepts all clients.

    Only digests are kept. A comparison takes the same time for any key. All calls of `admit` must
    come from one event loop.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [_digest(key) for key in keys]
        self._waiting = 0

    async def admit(self, given: str | None) -> None:
        """Raise `RefusedError` as `check` does, for a wrong key after `WRONG_S`.

        If many wait, further ones are refused at once: connections are for other clients.
        """
        try:
            self.check(given)
        except RefusedError:
            if given and self._waiting < _MOST_WAITING:
                self._waiting += 1
                try:
                    await asyncio.sleep(WRONG_S)
                finally:
                    self._waiting -= 1
            raise

    def check(self, given: str | None) -> None:
        """Raise `RefusedError` unless the value of the header has one of the keys."""
        if not self._digests:
            return
        kind, _, key = (given or "").partition(" ")
        digest = _digest(key.strip())
        found = [hmac.compare_digest(digest, own) for own in self._digests]
        if not (any(found) and kind.lower() == "bearer"):
            expected = "expected the header 'Authorization: Bearer KEY' with a key of this server"
            raise RefusedError(Reason.UNAUTHENTICATED, f"API key: {expected}")


def read_keys(given: Sequence[str], file: Path | None) -> Keys:
    """Return the keys of --api-key and of the lines of --api-key-file. Raises `UserError`."""
    keys = [*given]
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--api-key-file {file}: {cause_of(error)}") from None
        keys += [line.strip() for line in lines if line.strip()]
        if not keys:
            raise UserError(f"--api-key-file {file}: expected a key per line, got none")
    if not all(key.isascii() and key.isprintable() and key and " " not in key for key in keys):
        raise UserError("API key: expected visible ASCII characters")
    return Keys(keys)


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()

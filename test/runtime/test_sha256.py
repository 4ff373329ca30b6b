"""The hash of the ranks' proofs, in C++, against published vectors and Python's own."""

from __future__ import annotations

import hashlib
import hmac
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of nothing but the hash."""
    out = tmp_path_factory.mktemp("sha256") / "sha256"
    sources = [ROOT / "runtime/ops/start/sha256.cpp", Path(__file__).with_name("sha256_main.cpp")]
    include = f"-I{ROOT / 'runtime/ops'}"
    subprocess.run(["c++", "-std=c++20", "-O1", include, *sources, "-o", out], check=True)
    return out


def digests(program: Path, pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """The digest of each message, and its HMAC with its key."""
    lines = [f"{key.hex() or '-'} {message.hex() or '-'}\n" for key, message in pairs]
    done = subprocess.run([program], input="".join(lines), capture_output=True, text=True)
    found = [line.split() for line in done.stdout.splitlines()]
    return [(digest, mac) for digest, mac in found]


# FIPS 180-4's examples, and a million times the letter a.
NIST = {
    b"": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": (
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    ),
    b"a" * 1_000_000: "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
}

# RFC 4231, test cases 1, 2 and 6, whose key is longer than a block.
HMAC = [
    (
        b"\x0b" * 20,
        b"Hi There",
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
    ),
    (
        b"Jefe",
        b"what do ya want for nothing?",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
    ),
    (
        b"\xaa" * 131,
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
    ),
]


def test_published_digests(program: Path) -> None:
    found = digests(program, [(b"", message) for message in NIST])
    assert [digest for digest, _ in found] == list(NIST.values())


def test_published_codes(program: Path) -> None:
    found = digests(program, [(key, message) for key, message, _ in HMAC])
    assert [mac for _, mac in found] == [mac for *_, mac in HMAC]


def test_every_length_up_to_a_few_blocks(program: Path) -> None:
    draw = random.Random(0)
    pairs = [(draw.randbytes(n % 131), draw.randbytes(n)) for n in range(300)]
    assert digests(program, pairs) == [
        (hashlib.sha256(message).hexdigest(), hmac.new(key, message, "sha256").hexdigest())
        for key, message in pairs
    ]

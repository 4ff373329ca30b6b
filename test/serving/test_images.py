"""The container images: their packages, and the health that they ask for."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fake_server import fake_server

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.http_server import listen
from tensoropt.serving.http.body import Bodies
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.server import ServerOptions, serve
from tensoropt.serving.service import Service

FILES = sorted((Path(__file__).parents[2] / "docker").glob("*.Dockerfile"))


def _array(file: Path, instruction: str) -> list[str]:
    """Return the words of an instruction in its JSON form."""
    found = re.search(rf"^ *{instruction} (\[.*\])$", file.read_text(), re.MULTILINE)
    assert found is not None
    words: list[str] = json.loads(found[1])
    return words


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_both_images_serve_tensors_and_text(file: Path) -> None:
    extras = re.search(r"'/source\[(.*)\]'", file.read_text())
    assert extras is not None
    assert {"serve", "text", f"runtime-{file.stem}"} == set(extras[1].split(","))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_health_is_asked_for_at_any_port(file: Path, tmp_path: Path) -> None:
    entry, check = _array(file, "ENTRYPOINT"), _array(file, "CMD")
    wanted = entry[entry.index("--address-file") + 1]
    addresses = tmp_path / "addresses"
    assert check[0] == "python"
    command = [sys.executable, *(word.replace(wanted, str(addresses)) for word in check[1:])]
    with fake_server("--address-file", str(addresses)) as server:  # a free port
        assert addresses.read_text().startswith(f"http://127.0.0.1:{server.http}\ngrpc://")
        assert subprocess.run(command, check=False, timeout=60).returncode == 0
        server.process.terminate()
        server.ended()
        assert not addresses.exists()
    assert (
        subprocess.run(command, check=False, timeout=60, stderr=subprocess.DEVNULL).returncode != 0
    )


def test_a_file_of_addresses_that_cannot_be_written(tmp_path: Path) -> None:
    options = ServerOptions(grpc_port=None, address_file=tmp_path / "none" / "file")
    service = Service({}, Metrics(), 60.0, {})
    expected = r"--address-file .*: no such file or directory"
    with listen("HTTP", "127.0.0.1", 0) as listener, pytest.raises(UserError, match=expected):
        asyncio.run(serve(service, listener, options, Bodies(1 << 16)))

"""Unlike devices for tests of stages and replicas."""

from __future__ import annotations

from pathlib import Path

import pytest
from unlike_devices import described


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the descriptions of a fast and a slow device."""
    folder = tmp_path_factory.mktemp("unlike")
    for name, speed in (("fast", 3.0), ("slow", 1.0)):
        described(folder, name, speed)
    return folder


@pytest.fixture(scope="module")
def both(folder: Path) -> str:
    """Two devices of each kind."""
    return f"{folder}/fast.toml:2,{folder}/slow.toml:2"

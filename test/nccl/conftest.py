"""Jobs of a test run on the stand-ins, and write down what they call."""

from __future__ import annotations

from pathlib import Path

import pytest
from stand_ins import environment


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what this test's ranks call."""
    folder = tmp_path / "calls"
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)
    return folder

"""Lets the tests of a folder import the helpers beside them; helpers have names of their own.

Examples of hypothesis may take their time, to be drawn and to run: other work may be on the
machine.

A shell has what it starts in the background ignore Ctrl-C, nohup the end of the terminal, and so
does all that this starts in turn: tests of these signals need them back.

Ranks that meet over TCP share a secret of these tests, not the one in a person's home.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

os.environ["TENSOROPT_SECRET"] = "a secret of all the ranks of tests"

sys.path[:0] = sorted(str(path) for path in Path(__file__).parent.iterdir() if path.is_dir())

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: run where TENSOROPT_SWEEP is set, by make slow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "TENSOROPT_SWEEP" not in os.environ:
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="make slow"))


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-ins for NCCL and CUDA write, which take their place in this test."""
    from stand_ins import environment

    folder = tmp_path / "calls"
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def mlir_context() -> Iterator[None]:
    """Run a test in an MLIR context of its own."""
    from tensoropt.dialects.context import context

    with context():
        yield

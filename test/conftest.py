"""Settings of all tests: tiers, Hypothesis profiles, signals, and imports of helpers.

The tests of a folder import the helpers next to them, which have unique names.

Hypothesis draws fewer examples in the quick tier (test/budgets.py).

A shell starts background jobs with SIGINT ignored, and nohup ignores SIGHUP. Children inherit both,
so tests of these signals restore them.

Ranks that meet over TCP share a secret of these tests instead of the one in the user's home.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import budgets
import pytest
import tiers
from browser import Browser, find_browser

os.environ["TENSOROPT_SECRET"] = "a secret of all the ranks of tests"

sys.path[:0] = sorted(str(path) for path in Path(__file__).parent.iterdir() if path.is_dir())

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    choices = ["all", "quick", "rest"]
    parser.addoption("--tier", choices=choices, default="all", help="see test/tiers.py")
    parser.addoption("--write-durations", action="store_true", help="write test/durations.txt")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: run where TENSOROPT_SWEEP is set, by make slow")
    config.addinivalue_line("markers", "quick: in the quick tier though it takes long")
    config.addinivalue_line("markers", "sampled: in both tiers, with some cases in the quick one")
    budgets.load_profile(config.getoption("--tier"))
    if config.getoption("--write-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(tiers.Times())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (tier := config.getoption("--tier")) != "all":
        items[:], others = tiers.tier_of(items, tier)
        config.hook.pytest_deselected(items=others)
    if "TENSOROPT_SWEEP" not in os.environ:
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="make slow"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = find_browser()
    assert path is not None
    with Browser(path, tmp_path_factory.mktemp("profile")) as found:
        yield found


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

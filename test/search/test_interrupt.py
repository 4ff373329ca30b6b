"""Ctrl-C ends a long search."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

from tensoropt.compiler.search.ft import solve_frontier
from tensoropt.compiler.search.instance import load_instance


def test_interrupt_ends_the_search_soon() -> None:
    problem = load_instance(Path(__file__).parent / "instances" / "transformer_p8.npz")
    thread = threading.get_ident()
    timer = threading.Timer(1.0, signal.pthread_kill, (thread, signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        solve_frontier(problem)
    assert time.monotonic() - start < 20

"""Ctrl-C and time limits end a long search, in processor seconds: other work leaves them alone."""

from __future__ import annotations

import signal
import threading
import time
import weakref
from pathlib import Path
from types import GeneratorType

import pytest

from tensoropt.compiler.cli.instance import load_instance
from tensoropt.compiler.search.engine.control import Control, OutOfTimeError, alarm
from tensoropt.compiler.search.engine.ft import solve_frontier


def test_interrupt_ends_the_search_soon() -> None:
    problem = load_instance(Path(__file__).parent / "instances" / "transformer_p8.npz")
    thread = threading.get_ident()
    timer = threading.Timer(1.0, signal.pthread_kill, (thread, signal.SIGINT))
    start = time.process_time()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        solve_frontier(problem)
    assert time.process_time() - start < 20


def test_interrupt_can_leave_the_best_frontier_so_far() -> None:
    problem = load_instance(Path(__file__).parent / "instances" / "transformer_p16.npz")
    timer = threading.Timer(4.0, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    start = time.process_time()
    timer.start()
    frontier = solve_frontier(problem, control=Control(on_interrupt="return"))
    assert frontier.interrupted
    assert time.process_time() - start < 20
    assert 0 < frontier.epsilon < 0.1
    assert len(frontier.points) > 10
    assert frontier.points[0].time == 1004992614400


class _Held:
    """What a reference can be to."""


def test_an_alarm_does_not_ring_in_what_is_called_back() -> None:
    """The exception would be lost there, and said to be ignored; it comes in our own code next."""

    def busy(reference: object) -> None:
        until = time.process_time() + 0.1
        while time.process_time() < until:
            finished.append(False)
        finished.append(True)

    finished: list[bool] = []
    with pytest.raises(OutOfTimeError), alarm(time.monotonic() + 0.01):
        held = _Held()
        reference = weakref.ref(held, busy)
        del held
        assert reference() is None
        exec("while True: pass", {"__name__": "tensoropt.some.module"})
    assert finished[-1]


def test_an_alarm_does_not_ring_in_itself() -> None:
    """It would not come to its end, and ring where nobody expects it."""
    watched = alarm(time.monotonic() + 60)
    with watched:
        ring = signal.getsignal(signal.SIGALRM)
        assert callable(ring)
        assert isinstance(watched.gen, GeneratorType)
        ring(signal.SIGALRM, watched.gen.gi_frame)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_time_limit_is_kept() -> None:
    problem = load_instance(Path(__file__).parent / "instances" / "transformer_p16.npz")
    for limit_s in (2.0, 8.0, 32.0):
        start = time.process_time()
        frontier = solve_frontier(problem, time_limit_s=limit_s)
        used_s = time.process_time() - start
        assert used_s < 10 * limit_s  # minutes without a limit
        if frontier.epsilon < 0.1 or used_s > limit_s / 2:  # else other work left it too little
            break
    assert 0 < frontier.epsilon < 0.1

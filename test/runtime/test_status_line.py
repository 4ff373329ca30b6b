"""The line of a terminal that says what is being done."""

from __future__ import annotations

import os
import pty
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tensoropt.runtime.support import status_line
from tensoropt.runtime.support.status_line import clear_line, show_line


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_line, "_LONG_S", 0.02)
    monkeypatch.setattr(status_line, "_TICK_S", 0.01)


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Make stderr a terminal; yield what reads from it until a text is there."""
    ours, theirs = pty.openpty()
    seen = ""

    def read(text: str) -> str:
        nonlocal seen
        while text not in seen:
            assert select.select([ours], [], [], 10)[0], seen
            seen += os.read(ours, 100).decode()
        return seen

    with os.fdopen(theirs, "w") as stderr, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stderr)
        yield read
        clear_line()
    os.close(ours)


def test_what_takes_long_says_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as read:
        show_line("loading")
        assert read("loading (0 s)").startswith("\r\x1b[Kloading\r")
        clear_line()
        show_line("done")
        assert "(0 s)\r\x1b[K\r\x1b[Kdone" in read("done")


def test_what_others_write_is_not_wiped_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_line, "_LONG_S", 1000.0)
    with terminal(monkeypatch) as read:
        clear_line()
        show_line("shown")
        clear_line()
        clear_line()
        show_line("last")
        assert read("last") == "\r\x1b[Kshown\r\x1b[K\r\x1b[Klast"


def test_what_soon_changes_is_shown_if_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as read:
        show_line("first")
        show_line("second", quietly=True)
        assert "\x1b[Ksecond (0 s)" in read("second")


def test_nothing_is_said_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    show_line("loading")
    clear_line()
    assert capfd.readouterr() == ("", "")


def test_lines_below_are_drawn_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_line, "_LONG_S", 1000.0)
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((10, 3)))
    with terminal(monkeypatch) as read:
        show_line("searching for long\n1 ms\n2 ms")
        show_line("last")
        shown = "\r\x1b[Ksearching\r\n1 ms\r\x1b[1A"  # as wide and as high as the terminal
        assert read("last") == f"{shown}\r\x1b[Jlast"

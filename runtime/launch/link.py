"""What a rank and the person who started it tell each other while a job runs.

Rank 0 shows progress and asks whether to stop. Under the launcher both go through files of the
job's folder: the ranks have no terminal, and signals reach the launcher only.
"""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from tensoropt.runtime.launch.oversight import abort_and_exit
from tensoropt.runtime.support.status_line import show_line

__all__ = [
    "CHANNEL",
    "ENDING",
    "FolderLink",
    "LauncherLink",
    "TerminalLink",
    "ask_to_stop",
    "channel_to_launcher",
    "shown",
    "write_aside",
]


ENDING = (signal.SIGTERM, signal.SIGHUP)
"""The signals by which Slurm, Kubernetes, spot instances and closing terminals end a process."""

_STOP = "stop"  # the file that asks ranks to stop; it holds the signal's number

CHANNEL = "TENSOROPT_CHANNEL"
"""The variable with the descriptor of a rank's channel to the process that started it."""


class LauncherLink:
    """Nobody listens."""

    def show(self, text: str) -> None:
        """Show ``text`` in place of what was shown before."""

    def stop_signal(self) -> int:
        """Return the number of the signal that asked the job to stop in order, 0 before one did."""
        return 0

    def end(self, why: str) -> NoReturn:
        """End the job from any thread, for a reason that whoever started it is to tell."""
        abort_and_exit()

    def of_rank(self, rank: int) -> LauncherLink:
        """Return what rank ``rank`` shows things with: rank 0 shows them for all."""
        return self if rank == 0 else LauncherLink()


class FolderLink(LauncherLink):
    """A rank that the launcher started; ``folder`` is the job's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def show(self, text: str) -> None:
        write_aside(self._folder / "progress", text)

    def stop_signal(self) -> int:
        try:
            return int((self._folder / _STOP).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0

    def end(self, why: str) -> NoReturn:
        write_aside(self._folder / "ended", why)
        abort_and_exit()


class TerminalLink(LauncherLink):
    """A rank that mpiexec or srun started: its own stderr, and its own signals."""

    def __init__(self) -> None:
        self._asked = 0
        self._before = {
            number: signal.signal(number, self._ask)
            for number in (signal.SIGINT, *ENDING)
            if signal.getsignal(number) is not signal.SIG_IGN
        }

    def _ask(self, number: int, frame: object) -> None:
        self._asked = number
        for each, handler in self._before.items():
            signal.signal(each, handler)  # a second one ends at once

    def show(self, text: str) -> None:
        show_line(text)

    def stop_signal(self) -> int:
        return self._asked


def channel_to_launcher() -> Connection:
    """Return a rank's connection to the process that started it, where both talk."""
    return Connection(int(os.environ[CHANNEL]))


def write_aside(path: Path, text: str) -> None:
    """Write aside and rename, so that nobody reads half a line."""
    aside = path.with_suffix(".tmp")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def ask_to_stop(folder: Path, number: int) -> None:
    """Ask the ranks of the job in ``folder`` to stop in order, on behalf of signal ``number``."""
    write_aside(folder / _STOP, str(number))


def shown(folder: Path) -> str:
    """Return what rank 0 shows, empty if nothing yet."""
    try:
        return (folder / "progress").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""

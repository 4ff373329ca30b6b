"""Communication between a rank and the user who started it while a job runs.

Rank 0 shows progress and polls for a stop request. Under the launcher both use files in the job's
folder: the ranks have no terminal, and signals reach only the launcher.
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
    "read_progress",
    "write_aside",
]


ENDING = (signal.SIGTERM, signal.SIGHUP)
"""The signals by which Slurm, Kubernetes, spot instances and closing terminals end a process."""

_STOP = "stop"  # the file that requests a stop; it contains the signal's number

CHANNEL = "TENSOROPT_CHANNEL"
"""The environment variable with the descriptor of a rank's channel to its launching process."""


class LauncherLink:
    """A link without a user: nothing is shown, and nobody stops the job."""

    def show(self, text: str) -> None:
        """Replace the shown text by ``text``."""

    def stop_signal(self) -> int:
        """Return the number of the signal that requested an orderly stop, 0 without one."""
        return 0

    def end(self, why: str) -> NoReturn:
        """End the job from any thread; the launching process reports the reason ``why``."""
        abort_and_exit()

    def of_rank(self, rank: int) -> LauncherLink:
        """Return the link for rank ``rank``: only rank 0 shows text."""
        return self if rank == 0 else LauncherLink()


class FolderLink(LauncherLink):
    """The link of a rank that the launcher started; ``folder`` is the job's."""

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
    """The link of a rank that mpiexec or srun started: its own stderr and its own signals."""

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
            signal.signal(each, handler)  # a second signal ends the rank immediately

    def show(self, text: str) -> None:
        show_line(text)

    def stop_signal(self) -> int:
        return self._asked


def channel_to_launcher() -> Connection:
    """Return a rank's connection to its launching process; both ends send and receive."""
    return Connection(int(os.environ[CHANNEL]))


def write_aside(path: Path, text: str) -> None:
    """Write a file atomically, so that no reader sees half a line."""
    aside = path.with_suffix(".tmp")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def ask_to_stop(folder: Path, number: int) -> None:
    """Request an orderly stop of the ranks of the job in ``folder``, after signal ``number``."""
    write_aside(folder / _STOP, str(number))


def read_progress(folder: Path) -> str:
    """Return the text that rank 0 shows, empty if none yet."""
    try:
        return (folder / "progress").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""

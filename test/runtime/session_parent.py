"""A program with a session, whose run never ends: ``session_parent.py PLAN``.

It prints its ranks, is interrupted while it runs, starts the ranks anew, and once more while they
run; then it prints those, runs and waits to be killed.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np

from tensoropt.runtime.pool.session import Session
from tensoropt.runtime.support.errors import RankFailedError


def pids(session: Session) -> str:
    return " ".join(map(str, session.pids))


def ticks(pid: int) -> int:
    """The hundredths of a second of a processor that a process took."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wait_until_busy(pid: int) -> None:
    """Wait until a rank that was asleep is in a collective, where it waits awake."""
    before = ticks(pid)
    while ticks(pid) < before + 5:
        time.sleep(0.02)


def main() -> None:
    session = Session(sys.argv[1])
    print(pids(session), flush=True)
    try:
        session.run({"x": np.ones(2, np.float32)})
    except KeyboardInterrupt:
        print("interrupted", session.is_alive, flush=True)
    session.restart()
    running = threading.Thread(target=run, args=(session,))
    running.start()
    wait_until_busy(session.pids[0])
    session.restart()
    running.join()
    print(pids(session), flush=True)
    run(session)


def run(session: Session) -> None:
    try:
        session.run({"x": np.ones(2, np.float32)})
    except RankFailedError as error:
        print(error, flush=True)


if __name__ == "__main__":
    main()

"""A program with a session, whose run never ends: ``session_parent.py PLAN``.

It prints its ranks, is interrupted while it runs, starts the ranks anew, and once more while they
run; then it prints those, runs and waits to be killed.
"""

from __future__ import annotations

import sys
import threading
import time

import numpy as np

from tensoropt.runtime.pool.session import Session
from tensoropt.runtime.support.errors import RankFailedError


def pids(session: Session) -> str:
    return " ".join(map(str, session.pids))


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
    time.sleep(0.5)
    session.restart()
    running.join()
    print(pids(session), flush=True)
    run(session)


def run(session: Session) -> None:
    try:
        session.run({"x": np.ones(2, np.float32)})
    except RankFailedError as error:
        print(error, flush=True)


main()

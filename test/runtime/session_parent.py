"""A program with a session, whose run never ends: ``session_parent.py PLAN``.

It prints its ranks, is interrupted while it runs, starts the ranks anew and prints those too; then
it waits to be killed.
"""

from __future__ import annotations

import sys
import threading
import time

import numpy as np

from tensoropt.runtime.pool.session import Session


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
    running = threading.Thread(target=session.run, args=({"x": np.ones(2, np.float32)},))
    running.start()
    time.sleep(0.5)
    print(pids(session), flush=True)
    running.join()


main()

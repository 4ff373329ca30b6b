"""Lets the tests of a folder import the helpers beside them; helpers have names of their own.

A shell has what it starts in the background ignore Ctrl-C, and so does all that this starts in
turn: tests of Ctrl-C need it back.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path[:0] = sorted(str(path) for path in Path(__file__).parent.iterdir() if path.is_dir())

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

"""Lets the tests of a folder import the helpers beside them; helpers have names of their own."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = sorted(str(path) for path in Path(__file__).parent.iterdir() if path.is_dir())

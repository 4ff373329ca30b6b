"""Figures of bench/collectives/overlap.py from times of turns."""

from __future__ import annotations

import pytest
from collectives.overlap import Row, table
from turns import Turn

# Other work makes the second round slower, all three ways equally.
TIMES_S = {"plain": [0.1, 0.3, 0.1], "off": [0.15, 0.35, 0.15], "auto": [0.12, 0.32, 0.12]}
ROW = Row(
    "m", {w: [Turn(s, 0.0) for s in own] for w, own in TIMES_S.items()}, 0.05, 0.01, 0.02, 5, 4
)


def test_what_is_hidden_is_that_of_neighbouring_turns() -> None:
    assert ROW.hidden_s == pytest.approx(0.03)
    assert ROW.linked_s("off") == pytest.approx(0.15)
    assert ROW.of_longer == pytest.approx(1.2)


def test_a_row_has_shares_of_what_is_sent() -> None:
    line = table([ROW]).splitlines()[-1]
    assert line == "| m | 100.0 | 50.0 | 10.0 | 150.0 | 120.0 | 4 of 5 | 60% | 40% | 1.20 |"

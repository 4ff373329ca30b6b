"""What lets collectives run beside operators, from times of graphs and on ranks of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensoropt.compiler.calibrate import basics
from tensoropt.compiler.calibrate.overlap import measure_overlap, overlap_of
from tensoropt.compiler.calibrate.ranks import Ranks
from tensoropt.runtime.support.rank_options import RankOptions

PLAIN_S, STARTED_S = 1e-4, 2.6e-4  # 16 times: 10 us each


@pytest.mark.parametrize(
    ("products_s", "before_s", "beside_s", "share"),
    [
        (0.010, 0.014, 0.010 + 1e-5, 0.0),  # all of 4 ms is hidden
        (0.010, 0.014, 0.011 + 1e-5, 0.25),
        (0.010, 0.014, 0.014 + 1e-5, 1.0),
        (0.010, 0.014, 0.020, 1.0),  # worse than one after the other
        (0.002, 0.014, 0.012 + 1e-5, 0.0),  # no more than all products can be
        (0.010, 0.009, 0.009, 1.0),  # other work: nothing is known
    ],
)
def test_what_operators_lose(
    products_s: float, before_s: float, beside_s: float, share: float
) -> None:
    found = overlap_of(PLAIN_S, STARTED_S, products_s, before_s, beside_s)
    assert found.start_s == pytest.approx(1e-5)
    assert found.share == pytest.approx(share)


def test_a_machine_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(basics._SIDES, "cpu", (64,))
    ranks = Ranks(RankOptions(threads=1), lambda _: None)
    assert measure_overlap(ranks, 2, tmp_path, 5e-3, 1 << 12) is not None
    assert ranks.left_out == []
    assert measure_overlap(ranks, 1, tmp_path, 5e-3, 1 << 12) is None

"""Errors, rankings and tables of bench/accuracy/step_time.py from measured plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from accuracy.step_time import (
    Ranking,
    draw,
    errors_of,
    fitted,
    halves,
    rank_correlation,
    rankings_of,
    regret,
    rows_of,
    table,
)
from measured_plans import measured, plan


def test_halves_take_turns_at_the_models() -> None:
    plans = [plan(model, [1e6]) for model in ("a", "a", "b", "c", "b")]
    names = [[own.model.name for own in half] for half in halves(plans)]
    assert names == [["a", "a", "c"], ["b", "b"]]


def test_ranks_not_sizes_are_correlated() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 4000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(0.866, abs=1e-3)


def test_the_plan_that_is_predicted_fastest_may_not_be() -> None:
    assert regret([1.0, 2.0], [3.0, 2.0]) == pytest.approx(0.5)
    assert regret([2.0, 1.0], [3.0, 2.0]) == 0


def test_a_half_is_predicted_without_itself(tmp_path: Path) -> None:
    """Model b takes twice as long as a, so each is off by the prediction of the other."""
    ours = [plan("a", [1e6]), plan("a", [4e6])]
    theirs = [plan("b", [2e6], off=2.0), plan("b", [3e6], off=2.0)]
    rows = rows_of(measured([*ours, *theirs]))
    times = [row.measured_s for row in rows]
    others = errors_of([row.others_s for row in rows], times)
    assert others == pytest.approx([1.0, 1.0, 0.5, 0.5], abs=0.02)
    assert max(errors_of([row.own_s for row in rows], times)) < 0.5
    ranking = Ranking("a", 2, ("x", "y"), (1.0, 2.0), ((3.0,), (2.0,)))
    lines = table(rows, [ranking])
    assert "| a | 2 | 100.0% |" in "\n".join(lines)
    assert lines[-1] == "| a | 2 | 2 | -1.000 | - | +50.0% |"
    draw(rows, [replace(ranking, model="b")], tmp_path / "a.svg")
    assert "</svg>" in (tmp_path / "a.svg").read_text()


def test_plans_are_ranked_by_model_and_ranks() -> None:
    """A model on another number of ranks is a separate ranking."""
    wide = plan("a", [1e6])
    wide = replace(wide, step=replace(wide.step, ranks=2))
    known = [plan("c", [1e6, 2e6, 3e6])]
    device = fitted(measured(known), known)
    found = rankings_of([plan("a", [1e6]), wide, plan("b", [3e6]), plan("a", [2e6])], device)
    counts = [(own.model, own.ranks, len(own.names)) for own in found]
    assert counts == [("a", 1, 2), ("a", 2, 1), ("b", 1, 1)]
    assert found[0].predicted_s == pytest.approx(found[0].measured_s, rel=0.02)


def test_a_turn_says_how_far_ranks_can_be_told() -> None:
    """The fastest turn counts. Two plans that change places leave nothing to predict."""
    turns = [replace(plan("a", [work]), name=str(work), measured_s=time_s)
             for work, times in ((1e6, (3.0, 1.0, 1.5)), (2e6, (2.0, 4.0, 2.5)))
             for time_s in times]  # fmt: skip
    [found] = rankings_of(turns, fitted(measured(turns), turns))
    assert (found.measured_s, found.names) == ([1.0, 2.0], ["1000000.0", "2000000.0"])
    assert found.ceiling() == pytest.approx((-1 + 1 + 1) / 3)
    assert replace(found, turns=[(1.0,), (2.0,)]).ceiling() is None

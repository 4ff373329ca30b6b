"""Which rank is named as the one that stays behind."""

from __future__ import annotations

import pytest

from tensoropt.elastic.control import RankStatus
from tensoropt.elastic.coordinator import stragglers
from tensoropt.elastic.coordinator.stragglers import Stragglers


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(stragglers.time, "monotonic", lambda: now[0])
    return now


def _ranks(*own_times_s):
    return [RankStatus(n, f"cpu:{n}", None, time_s) for n, time_s in enumerate(own_times_s)]


def _looks(watch, clock, seconds, *own_times_s):
    """Look once a second; return what was named."""
    found = []
    for _ in range(seconds):
        found.append(watch.look(_ranks(*own_times_s)))
        clock[0] += 1.0
    return [one for one in found if one is not None]


def test_a_rank_that_is_slow_for_long_is_named_once_with_what_was_measured(clock):
    named = _looks(Stragglers(), clock, 60, 0.010, 0.011, 0.021)
    assert [one.facts for one in named] == [
        {"rank": 2, "device": "cpu:2", "own_s": 0.021, "others_s": pytest.approx(0.0105)}
    ]
    assert named[0].text == "rank 2 on cpu:2 takes 21.0 ms per step by itself, the others 10.5 ms"


def test_a_rank_that_is_slow_for_a_moment_is_not_named(clock):
    watch = Stragglers()
    assert _looks(watch, clock, 8, 0.010, 0.030) == []
    assert _looks(watch, clock, 1, 0.010, 0.011) == []
    assert _looks(watch, clock, 8, 0.010, 0.030) == []


def test_other_ranks_are_not_judged_by_those_before(clock):
    watch = Stragglers()
    assert _looks(watch, clock, 8, 0.010, 0.030) == []
    watch.begin()
    assert _looks(watch, clock, 8, 0.010, 0.030) == []


def test_one_rank_and_ranks_without_times_are_never_named(clock):
    assert _looks(Stragglers(), clock, 30, 0.5) == []
    assert _looks(Stragglers(), clock, 30, 0.5, None) == []


def test_a_rank_within_half_of_the_others_is_not_named(clock):
    assert _looks(Stragglers(), clock, 30, 0.010, 0.0149) == []

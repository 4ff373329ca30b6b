"""Listed slow tests exist, and the quick tier keeps one test of every file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import tiers
from budgets import examples

ROOT = Path(__file__).parents[1]


def test_listed_functions_exist() -> None:
    stale = []
    for name in tiers.read_times():
        path, *_, function = name.split("::")
        source = ROOT / path
        if not source.exists() or f"def {function}(" not in source.read_text(encoding="utf-8"):
            stale.append(name)
    assert stale == [], "run: make durations"


def test_a_file_keeps_its_cheapest_function() -> None:
    times = {"a.py::slow": 9.0, "a.py::slower": 10.0, "b.py::slow": 9.0}
    functions = ["a.py::slow", "a.py::slower", "b.py::slow", "b.py::fast"]
    assert tiers.quick_functions(functions, times) == {"a.py::slow", "b.py::fast"}


def test_a_marked_test_is_quick() -> None:
    slow = next(iter(tiers.read_times()))
    others = [f"{slow.split('::')[0]}::fast"]
    for is_marked, quick in ((True, [slow, *others]), (False, others)):
        items = [
            SimpleNamespace(nodeid=name, get_closest_marker=lambda _, m=is_marked: m or None)
            for name in (slow, *others)
        ]
        assert [item.nodeid for item in tiers.tier_of(items, "quick")[0]] == quick  # type: ignore[arg-type]


def test_a_budget_follows_the_profile() -> None:
    full = examples(200).max_examples
    assert full in (30, 200, 2000)
    assert examples(6).max_examples >= 5

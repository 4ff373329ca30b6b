"""Listed slow tests exist, and the quick tier keeps a test of nearly every file."""

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


def test_a_file_keeps_the_first_case_of_its_cheapest_function() -> None:
    times = {"a.py::slow": 2.0, "a.py::slower": 3.0, "b.py::slow": 2.0, "c.py::slow": 9.0}
    cases = ["a.py::slower", "a.py::slow[0]", "a.py::slow[1]", "b.py::slow", "b.py::fast"]
    assert tiers.quick_cases([*cases, "c.py::slow"], times) == {"a.py::slow[0]", "b.py::fast"}


def test_a_marked_test_is_quick() -> None:
    slow = next(iter(tiers.read_times()))
    others = [f"{slow.split('::')[0]}::fast"]
    for is_marked, quick in ((True, [slow, *others]), (False, others)):
        items = [
            SimpleNamespace(nodeid=name, get_closest_marker=lambda _, m=is_marked: m or None)
            for name in (slow, *others)
        ]
        assert [item.nodeid for item in tiers.tier_of(items, "quick")[0]] == quick  # type: ignore[arg-type]


def test_a_sampled_test_is_in_both_tiers() -> None:
    marks = {"a.py::sampled": "sampled", "a.py::fast": None}
    items = [
        SimpleNamespace(
            nodeid=name, get_closest_marker=lambda mark, m=own: m if m == mark else None
        )
        for name, own in marks.items()
    ]
    for tier, names in (("quick", list(marks)), ("rest", ["a.py::sampled"])):
        assert [item.nodeid for item in tiers.tier_of(items, tier)[0]] == names  # type: ignore[arg-type]


def test_a_budget_follows_the_profile() -> None:
    full = examples(200).max_examples
    assert full in (30, 200, 2000)
    assert examples(6).max_examples >= 5

"""Ablation of the search: its switches fit the source, and a row compares two versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from search.ablated import CASES, Found
from search.ablation import ROOT, apply, compare
from search.switches import PROCESSOR_CLOCK, SWITCHES, Edit


@pytest.mark.parametrize("name", SWITCHES)
def test_each_edit_fits_the_source(name: str) -> None:
    for edit in (PROCESSOR_CLOCK, *SWITCHES[name].edits):
        assert (ROOT / edit.file).read_text(encoding="utf-8").count(edit.old) == 1


def test_an_edit_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a b a")
    apply([Edit("file", "b", "c")], tmp_path)
    assert (tmp_path / "file").read_text() == "a c a"
    with pytest.raises(SystemExit, match="expected once: 'a'"):
        apply([Edit("file", "a", "")], tmp_path)


def test_a_row_names_the_worst_case() -> None:
    old = {name: Found(name, 1.0, 0.05, 2.0, 8.0) for name in ("bert", "llama")}
    new = {"bert": Found("bert", 4.0, 0.05, 2.0, 8.0), "llama": Found("llama", 1.0, 0.25, 3.0, 8.0)}
    assert compare(old, new).split() == [
        *("2.00", "4.00", "bert", "+10.00", "+20.00", "llama", "+50.00", "llama", "+0.00", "bert")
    ]


def test_there_are_models_and_training_steps() -> None:
    assert len(CASES) >= 12
    assert {case.trains for case in CASES.values()} == {False, True}

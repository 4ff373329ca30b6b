"""Sections of the page of benchmarks."""

from __future__ import annotations

from pathlib import Path

from sections import write_section


def test_the_section_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    path.write_text("# Benchmarks\n\nbefore\n")
    write_section("volume", "## Volume\n\n| first |\n", path)
    path.write_text(path.read_text() + "\nafter\n")
    write_section("volume", "## Volume\n\n| second |", path)
    text = path.read_text()
    assert "first |" not in text
    assert text.index("before") < text.index("| second |") < text.index("after")
    assert text.count("## Volume") == 1


def test_sections_do_not_touch_each_other(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    write_section("one", "1", path)
    write_section("two", "2", path)
    write_section("one", "3", path)
    assert path.read_text() == (
        "# Benchmarks\n\n<!-- one -->\n3\n<!-- /one -->\n\n<!-- two -->\n2\n<!-- /two -->\n"
    )

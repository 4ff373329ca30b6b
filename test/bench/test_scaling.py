"""Times over the number of layers: the table of two small models."""

from __future__ import annotations

from pathlib import Path

from compilation.scaling import compile_layers, table


def test_a_line_per_number_of_layers_and_one_of_ratios(tmp_path: Path) -> None:
    timings = [compile_layers(layers, tmp_path) for layers in (1, 2)]
    title, rule, *lines = table(timings).splitlines()
    assert len(lines) == 3
    assert {line.count("|") for line in (title, rule, *lines)} == {title.count("|")}
    assert lines[-1].startswith("| 2x | ")

"""Times of compilations: rows of scaled-down models."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from compilation import compile_time
from compilation.compile_time import compile_model, square
from tiny import write_tiny

from tensoropt.compiler.cost.device import load_device
from tensoropt.runtime.layout.mesh import Mesh


@pytest.mark.parametrize(
    ("devices", "shape"), [(2, (1, 2)), (4, (2, 2)), (8, (2, 4)), (12, (3, 4)), (64, (8, 8))]
)
def test_meshes_are_as_square_as_they_can_be(devices: int, shape: tuple[int, ...]) -> None:
    assert square(devices).shape == shape


def test_a_row_per_epsilon_with_what_it_reached(tmp_path: Path) -> None:
    path = write_tiny("gpt3_13b", tmp_path)
    rows = list(compile_model(path, Mesh((2, 2)), load_device("h200"), [0.5, 0.0], 60.0))
    assert [row.asked for row in rows] == [0.5, 0.0]
    assert all(row.reached <= row.asked for row in rows)
    assert rows[0].points <= rows[1].points
    for row in rows:
        assert row.distinct < row.variables
        parts = (row.import_s, row.prepare_s, row.tables_s, row.search_s, row.points_s)
        assert min(parts) > 0
        assert row.whole_s == pytest.approx(math.fsum(parts))


def test_the_table_has_a_line_per_model_and_epsilon(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["alexnet", "--devices", "4", "--epsilon", "0.5", "0.2", "--device", "v100"]
    monkeypatch.setattr(sys, "argv", ["compile_time.py", *arguments])
    compile_time.main()
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.split(" | ")[-1].strip() == "reached"
    assert [line.split(" | ")[0].strip() for line in lines] == ["alexnet", "alexnet"]
    assert {len(line) for line in lines} == {len(title)}

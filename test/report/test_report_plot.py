"""The picture of a frontier."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensoropt.compiler.report.plot import plot_frontier
from tensoropt.compiler.support.errors import UserError


def test_svg_shows_meshes_and_knee(frontier, tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    plot_frontier(frontier, path)
    text = path.read_text()
    for label in ("2x2", "knee", "memory per device (MiB)", "model.onnx on 4 x cpu"):
        assert f"<!-- {label} -->" in text


def test_same_frontier_same_bytes(frontier, tmp_path: Path) -> None:
    for suffix in (".svg", ".png"):
        paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
        for path in paths:
            plot_frontier(frontier, path)
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_png(frontier, tmp_path: Path) -> None:
    path = tmp_path / "a.PNG"
    plot_frontier(frontier, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_other_suffix(frontier, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a file ending in \.png or \.svg, got: '.*a\.pdf'"):
        plot_frontier(frontier, tmp_path / "a.pdf")
    assert not list(tmp_path.iterdir())

"""The picture of a frontier."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from spots import spot

from tensoropt.compiler.comparison.compare import Compared
from tensoropt.compiler.report.comparison import Comparison
from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.report.plot import plot_comparison, plot_frontier, plot_profile
from tensoropt.compiler.report.plot_axes import begin, byte_scale, second_scale
from tensoropt.compiler.report.plot_labels import Text, place_labels
from tensoropt.compiler.support.errors import UserError


def test_svg_shows_meshes_and_knee(frontier, tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    plot_frontier(frontier, path)
    text = path.read_text()
    for label in (
        "2x2",
        "knee",
        "tensor memory per device (MiB)",
        "model.onnx on 4 x cpu, predicted",
    ):
        assert f"<!-- {label} -->" in text


def test_memory_is_that_of_processes_where_it_is_known(frontier, profile, tmp_path: Path) -> None:
    beside = [replace(point, beside_bytes=80 << 20) for point in frontier.points]
    for points, name in ((frontier.points, "tensor"), (beside, "process")):
        plot_frontier(replace(frontier, points=points), tmp_path / "a.svg")
        rows = [(1, None), (2, points[1])]
        plot_profile(replace(profile, rows=rows), tmp_path / "b.svg")
        compared = [Compared("ft", points[1], 1.0, 1.0, "")]
        plot_comparison(Comparison("model.onnx", "cpu", 2, compared), tmp_path / "c.svg")
        for path in tmp_path.iterdir():
            assert f"{name} memory per device (MiB)" in drawn(path)
        assert ("beside tensors" in drawn(tmp_path / "b.svg")) == (name == "process")
        assert ("82.0 MiB" in drawn(tmp_path / "c.svg")) == (name == "process")


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


def drawn(path: Path) -> list[str]:
    """Return the texts of an SVG, in order."""
    return re.findall("<!-- (.*?) -->", path.read_text())


def test_points_are_numbered_and_the_pick_is_marked(frontier, tmp_path: Path) -> None:
    plot_frontier(replace(frontier, chosen=frontier.points[2]), tmp_path / "a.svg")
    texts = drawn(tmp_path / "a.svg")
    assert {"0 fastest", "1 knee", "2 pick", "3 leanest", "time per step (ms)"} <= {*texts}


@pytest.mark.parametrize("count", [1, 2, 141, 500])
def test_any_number_of_points(count: int, tmp_path: Path) -> None:
    points = [spot(i, 1e-6 * 1.01**i, int(2**33 * 0.99**i), (2, 4)) for i in range(count)]
    plot_frontier(FrontierReport("a$b$.onnx", "cpu", 8, points), tmp_path / "a.svg")
    texts = drawn(tmp_path / "a.svg")
    numbers = [text for text in texts if re.fullmatch(r"\d+ .*|[1-9]\d\d", text)]
    assert "a$b$.onnx on 8 x cpu, predicted" in texts
    assert any(text.startswith("0 fastest") for text in numbers)
    assert any(text.startswith(f"{count - 1} ") for text in numbers)
    assert len(numbers) <= 40


def test_labels_stay_apart_and_inside() -> None:
    places = [(10.0 * i, 10.0) for i in range(10)]
    texts = [Text(0, "first", must=True), *(Text(i, str(i)) for i in range(1, 10))]
    labels = place_labels(places, texts, (0.0, -20.0, 90.0, 30.0), 7.0)
    boxes = sorted((places[each.text.point][0] + each.right, each.up > 0) for each in labels)
    assert labels[0].text.text == "first"
    assert len({*boxes}) == len(boxes)
    assert all(0 <= left <= 90 for left, _ in boxes)
    assert len(place_labels(places, texts, (0.0, 0.0, 1.0, 1.0), 7.0)) == 0


def test_units_and_zero() -> None:
    assert (second_scale([2e-6]).unit, second_scale([3.0]).unit) == ("us", "s")
    assert (byte_scale([2**31]).convert([2**30]), byte_scale([2**31]).unit) == ([1.0], "GiB")
    for values, least, scale in (
        ([1.0, 3.0], 0.0, "linear"),
        ([2.9, 3.0], None, "linear"),
        ([5.0], 0.0, "linear"),
        ([1.0, 1000.0], None, "log"),
    ):
        axes = Figure().add_subplot()
        axes.plot(values, values)
        begin(axes, "y", values)
        assert axes.get_yscale() == scale
        assert (axes.get_ylim()[0] == 0.0) == (least == 0.0)


def test_profile_and_comparison(profile, frontier, tmp_path: Path) -> None:
    plot_profile(profile, tmp_path / "a.svg")
    assert {"does not fit", "steps per second", "1.20x"} <= {*drawn(tmp_path / "a.svg")}
    rows = [
        Compared("ft", frontier.points[0], 1.0, 1.0, ""),
        Compared("exhaustive", None, 0.1, None, "too many"),
    ]
    plot_comparison(Comparison("model.onnx", "cpu", 4, rows), tmp_path / "b.svg")
    assert {"1.000x, mesh 4", "refused: too many"} <= {*drawn(tmp_path / "b.svg")}

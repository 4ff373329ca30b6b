"""The report of a plan: its data, and the page in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from browser import NEEDS_BROWSER
from onnx import TensorProto, helper, numpy_helper
from report_pages import Open, click, data_of, move, press, text

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.report.html import blocks
from tensoropt.compiler.report.html.layouts import layout_words
from tensoropt.compiler.report.html.page import page_of
from tensoropt.compiler.report.html.report import check_report_path, report_page, write_report
from tensoropt.compiler.search.frontier.points import knee
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.support.errors import UserError

MODELS = Path(__file__).parents[1] / "models"
HOSTILE = "</script><img src=x onerror=alert(1)>&{script}"

Planned = tuple[FrontierReport, list[FrontierPoint]]


def planned(path: Path, **request: object) -> Planned:
    module = driver.load(path, {})
    driver.advance(module, "rules")
    found = driver.frontier(module, Request(**request))  # type: ignore[arg-type]
    points = list(found.points)
    return FrontierReport(path.name, "cpu", 4, points, epsilon=found.epsilon), points


def chain(path: Path, length: int, names: Callable[[int], str]) -> Path:
    """Write a model of matrix products in a row."""
    weight = numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", [f"v{i}" if i else "x", "w"], [f"v{i + 1}"], name=names(i))
        for i in range(length)
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8])
        for name in ("x", f"v{length}")
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def gpt2() -> Planned:
    return planned(MODELS / "gpt2_tiny.onnx", devices=4, device="v100", epsilon=0.05)


@pytest.fixture(scope="module")
def page(gpt2: Planned) -> str:
    frontier, points = gpt2
    return report_page(frontier, points, knee(points), ["note: a remark"])


def test_the_data_are_those_of_the_plan(gpt2: Planned, page: str) -> None:
    _, points = gpt2
    data, picked = data_of(page), knee(points)
    assert data["frontier"]["picked"] == picked.index
    assert len(data["frontier"]["points"]) == len(points)
    assert data["head"]["notes"] == ["a remark"]
    rows, strings = data["timeline"]["rows"], data["strings"]
    assert sum(row[6] for row in rows) == pytest.approx(picked.time_s, rel=1e-5)
    assert max(row[7] for row in rows) == rows[data["timeline"]["peak"]][7] == picked.memory_bytes
    layers = data["graph"]["blocks"]
    assert [block["count"] for block in layers if block["count"] > 1] == [2]
    whole = sum(block["time_s"] * block["count"] for block in layers)
    assert whole == pytest.approx(picked.time_s, rel=0.05)
    assert sum(b["static_bytes"] for b in layers) == picked.static_bytes
    ops = {strings[node[1]] for block in layers for node in block["nodes"]}
    assert {"Gemm", "Softmax", "LayerNormalization"} <= ops


def test_memory_is_that_of_the_process(tmp_path: Path) -> None:
    model = chain(tmp_path / "a.onnx", 4, lambda i: f"n{i}")
    frontier, points = planned(model, devices=2)
    data, picked = data_of(report_page(frontier, points, points[0])), points[0]
    assert ["B", picked.process_bytes, "process memory per device"] in data["head"]["tiles"]
    sizes = [point["process_bytes"] for point in data["frontier"]["points"]]
    assert sizes == [point.process_bytes for point in points]
    rows, beside = data["timeline"]["rows"], data["timeline"]["beside_bytes"]
    assert max(row[7] for row in rows) + beside == picked.process_bytes > picked.memory_bytes


def test_what_other_points_do_otherwise_is_said(gpt2: Planned, page: str) -> None:
    data = data_of(page)
    rows = {row["index"]: row for row in data["frontier"]["points"]}
    assert "changes" not in rows[data["frontier"]["picked"]]
    other = rows[0 if data["frontier"]["picked"] else 1]
    assert other["changes"][0]["before"] != other["changes"][0]["after"]


def test_same_plan_same_bytes(gpt2: Planned, page: str) -> None:
    frontier, points = gpt2
    assert report_page(frontier, points, knee(points), ["note: a remark"]) == page


def test_texts_cannot_end_the_data() -> None:
    page = page_of({"name": HOSTILE, "\u2028": 1}, HOSTILE)
    assert data_of(page) == {"name": HOSTILE, "\u2028": 1}
    assert "<img" not in page
    assert page.count("<script") == 2


def test_nothing_is_fetched(page: str) -> None:
    own = page.replace(re.findall(r'<script id="data".*?</script>', page, re.S)[0], "")
    own = re.sub(r"'sha256-.*?'", "", own)  # a hash may begin like a handler
    assert re.findall(r"(?:https?:)?//[\w.]+", own) == ["http://www.w3.org"]
    assert not re.search(r"\b(?:src|on\w+|style)=|innerHTML|outerHTML|insertAdjacent|eval\(", own)
    assert "default-src 'none'" in own
    assert "unsafe" not in own


def test_very_many_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_PIECE", 20)
    monkeypatch.setattr(blocks, "_LISTED", 50)
    frontier, points = planned(
        chain(tmp_path / "a.onnx", 70, lambda i: f"n{i}_{'ab'[i % 3 == 0]}"), devices=2
    )
    data = data_of(report_page(frontier, points, points[0]))
    graph = data["graph"]["blocks"]
    assert sum(block["ops"] * block["count"] for block in graph) == 70
    assert sum(len(block["nodes"]) for block in graph) <= 50


def test_layouts_in_words() -> None:
    words = layout_words(["S(0)", "R", "S(0)", "P(sum)"], "xyzw", (2, 2, 2, 2))
    assert words == "split in dimension 0 over x,z, partial sum over w"
    assert layout_words(["S(0)", "R"], "xy", (1, 2)) == "replicated"


def test_where_a_report_goes(gpt2: Planned, tmp_path: Path) -> None:
    frontier, points = gpt2
    write_report(frontier, points, points[0], tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    for name, message in (("a.pdf", "a file ending in .html"), ("no/a.html", "existing folder")):
        with pytest.raises(UserError, match=message):
            check_report_path(tmp_path / name)


@NEEDS_BROWSER
class TestInABrowser:
    def test_the_frontier(self, opened: Open, gpt2: Planned, page: str) -> None:
        _, points = gpt2
        seen = opened(page)
        assert text(seen, "h1") == "gpt2_tiny.onnx"
        assert text(seen, "#facts h3") == f"Point {knee(points).index}: knee, pick"
        seen.until("document.querySelectorAll('#frontier circle.point').length")
        count = seen.run("document.querySelectorAll('#frontier circle.point').length")
        assert count == len(points)
        move(seen, '#frontier circle[data-point="0"]')
        seen.until("document.querySelector('#frontier-at').textContent.startsWith('point 0 (')")
        click(seen, '#frontier circle[data-point="0"]')
        seen.until("document.querySelector('#facts h3').textContent == 'Point 0: fastest'")
        assert "Instead of what point" in text(seen, "#facts")
        assert seen.run("document.querySelectorAll('#facts tbody tr').length") > 0
        assert seen.screenshot().startswith(b"\x89PNG")

    def test_by_the_keyboard(self, opened: Open, page: str) -> None:
        seen = opened(page)
        seen.run("document.querySelector('#frontier').focus()")
        for key in ("End", "Enter"):
            press(seen, key)
        seen.until("document.querySelector('#facts h3').textContent.includes('leanest')")
        seen.run("document.querySelector('#timeline').focus()")
        press(seen, "ArrowRight")
        seen.until("document.querySelector('#step-at').textContent")
        press(seen, "+")
        seen.until("view[1] - view[0] < TOTAL * 0.6")
        press(seen, "Home")
        seen.until("view[1] - view[0] === TOTAL")

    def test_the_graph(self, opened: Open, page: str) -> None:
        seen = opened(page)
        click(seen, ".block.many > button")
        seen.until("document.querySelectorAll('.block.many .node').length == 37")
        assert seen.run("document.querySelectorAll('.block.many .edge.moved').length") > 0
        assert seen.run("document.querySelectorAll('.block.many .pill').length") > 0
        click(seen, ".block.many .node")
        seen.until("document.querySelector('#node h3').textContent.includes('LayerNorm')")
        assert "whole" in text(seen, "#node") or "split by batch" in text(seen, "#node")
        drawn = "[...document.querySelectorAll('.block.many .node rect:first-child')]"
        boxes = seen.run(f"{drawn}.map((r) => [+r.getAttribute('x'), +r.getAttribute('y')])")
        assert len({tuple(box) for box in boxes}) == 37
        click(seen, ".block.many > button")
        seen.until("document.querySelector('.block.many .body').hidden")

    def test_the_step(self, opened: Open, page: str) -> None:
        seen = opened(page)
        seen.until("document.querySelectorAll('#timeline .fill.collective').length")
        move(seen, "#timeline .fill.collective")
        seen.until("document.querySelector('#step-at').textContent.includes('all-reduce')")
        assert "memory" in text(seen, "#step-at")
        assert "peak" in text(seen, "#memory")
        for place in ("costly", "collectives", "alive", "kept"):
            assert seen.run(f"document.querySelectorAll('#{place} tbody tr').length") > 0

    def test_names_are_text(self, opened: Open, tmp_path: Path) -> None:
        frontier, points = planned(
            chain(tmp_path / "a.onnx", 3, lambda i: f"{HOSTILE}{i}"), devices=2
        )
        seen = opened(report_page(frontier, points, points[0]))
        seen.until("document.querySelectorAll('.node').length")
        assert seen.run("document.querySelectorAll('img').length") == 0
        assert HOSTILE in seen.run("document.querySelector('.node').getAttribute('aria-label')")

    def test_dark_narrow_and_printed(self, opened: Open, page: str) -> None:
        seen = opened(page)
        colours = set()
        for scheme in ("dark", "light"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            seen.call("Emulation.setEmulatedMedia", features=features)
            colours.add(seen.run("getComputedStyle(document.body).backgroundColor"))
        assert len(colours) == 2
        size = {"width": 420, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        seen.call("Emulation.setDeviceMetricsOverride", **size)
        root = "document.documentElement"
        seen.until(f"{root}.clientWidth <= 420")
        assert seen.run(f"{root}.scrollWidth") <= 420
        assert seen.call("Page.printToPDF")["data"]

"""A frontier and a profile of points made by hand, and a browser for pages of reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, Page
from report_pages import Open
from spots import spot

from tensoropt.compiler.report.frontier import FrontierReport, ScalingReport


@pytest.fixture
def frontier() -> FrontierReport:
    points = [
        spot(0, 0.001, 4 << 20, (4,)),
        spot(1, 0.0012, 2 << 20),
        spot(2, 0.005, (3 << 20) // 2),
        spot(3, 0.009, 1 << 20, (4,)),
    ]
    return FrontierReport("model.onnx", "cpu", 4, points)


@pytest.fixture
def profile(frontier: FrontierReport) -> ScalingReport:
    return ScalingReport(
        "model.onnx", "cpu", [(1, None), (2, frontier.points[1]), (4, frontier.points[0])]
    )


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open a page; nothing may complain, and nothing be asked for but the file."""
    pages: list[Page] = []

    def opened(text: str) -> Page:
        path = tmp_path / f"{len(pages)}.html"
        path.write_text(text)
        page = browser.open(path.as_uri())
        pages.append(page)
        page.until("document.documentElement.dataset.ready")
        return page

    yield opened
    for page in pages:
        with page:
            assert page.complaints() == []
            asked = "performance.getEntriesByType('resource').map((entry) => entry.name)"
            assert [url for url in page.run(asked) if not url.startswith("data:")] == []

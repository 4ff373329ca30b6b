"""A frontier and a profile of points made by hand."""

from __future__ import annotations

import pytest
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

"""Tables, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, replace

import pytest

from tensoropt.compiler.cost.expected_error import FigureError, PlanError
from tensoropt.compiler.report.machine import (
    frontier_csv,
    frontier_json,
    profile_csv,
    profile_json,
)
from tensoropt.compiler.report.table import frontier_table, profile_table

FIGURES = [
    "time_s",
    "compute_s",
    "communication_s",
    "hidden_s",
    "process_bytes",
    "memory_bytes",
    "static_bytes",
    "transient_bytes",
]


def test_table(frontier) -> None:
    assert frontier_table(frontier).splitlines() == [
        "model.onnx on 4 x cpu: 4 points, per device",
        "index  mesh     time  compute  communication    memory    static  transient",
        "    0     4  1.00 ms   750 us         250 us  4.00 MiB  4.00 MiB        0 B  fastest",
        "    1   2x2  1.20 ms   900 us         300 us  2.00 MiB  2.00 MiB        0 B  knee",
        "    2   2x2  5.00 ms  3.75 ms        1.25 ms  1.50 MiB  1.50 MiB        0 B",
        "    3     4  9.00 ms  6.75 ms        2.25 ms  1.00 MiB  1.00 MiB        0 B  leanest",
        "expected error: unknown, cpu has not been measured (run tensoropt-profile)",
    ]


def test_a_bound_about_cost_tables_is_called_so(frontier) -> None:
    of = "4 points within 3.54% of the exact frontier"
    bounded = replace(frontier, epsilon=0.0354)
    assert f"{of}, per device" in frontier_table(bounded).splitlines()[0]
    by_tables = replace(bounded, by_tables=True)
    assert f"{of} by cost tables, per device" in frontier_table(by_tables).splitlines()[0]


ERROR = PlanError(FigureError(0.062, 0.14, 24), FigureError(0.031, 0.05, 12), True)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            ERROR,
            "time 6%, nine in ten below 14% (24 plans of this model that were left out of the "
            "fit); memory 3%, nine in ten below 5% (12 plans)",
        ),
        (
            replace(ERROR, model_measured=False, memory=None),
            "time 6%, nine in ten below 14% (24 plans of other models that were left out of the "
            "fit); memory not measured",
        ),
        (
            PlanError(None, FigureError(None, None, 3), False),
            "time unknown, neither this model nor two others were measured; memory unknown, "
            "expected at least 5 measured plans, got: 3 (more models or a longer --budget of "
            "tensoropt-profile)",
        ),
    ],
)
def test_how_far_off_figures_may_be_stands_below(frontier, error: PlanError, line: str) -> None:
    measured = replace(frontier, error=error)
    assert frontier_table(measured).splitlines()[-1] == f"expected error: {line}"
    assert json.loads(frontier_json(measured))["expected_error"] == asdict(error)


def test_coloured_table_holds_every_figure(frontier) -> None:
    text = frontier_table(frontier, colour=True)
    assert "\x1b[" in text
    for cell in ("fastest", "knee", "leanest", "4.00 MiB", "2.25 ms", "2x2"):
        assert cell in text


def test_json(frontier) -> None:
    document = json.loads(frontier_json(frontier))
    head = ["schema", "model", "device", "expected_error", "epsilon", "time_epsilon", "axes"]
    assert list(document) == [
        *head, "interrupted", "stopped", "left_out", "above_capacity", "chosen", "points",
    ]  # fmt: skip
    ended = (document["interrupted"], document["stopped"], document["left_out"])
    assert ended == (False, None, [])
    assert document["epsilon"] == 0
    assert document["schema"] == 1
    assert (document["model"], document["device"]) == ("model.onnx", "cpu")
    assert list(document["points"][0]) == ["index", "mesh", *FIGURES, "marks"]
    assert document["chosen"] is None
    marked = [point["marks"] for point in document["points"]]
    assert marked == [["fastest"], ["knee"], [], ["leanest"]]
    assert [point["mesh"] for point in document["points"]] == [[4], [2, 2], [2, 2], [4]]
    times = [point["time_s"] for point in document["points"]]
    assert times == [point.time_s for point in frontier.points]


def test_csv(frontier) -> None:
    rows = list(csv.reader(io.StringIO(frontier_csv(frontier))))
    assert rows[0] == ["index", "mesh", *FIGURES, "marks"]
    figures = [str(getattr(frontier.points[1], name)) for name in FIGURES]
    assert rows[2] == ["1", "2x2", *figures, "knee"]
    assert [row[-1] for row in rows[1:]] == ["fastest", "knee", "", "leanest"]
    assert len(rows) == 5


def test_profile_table(profile) -> None:
    lines = profile_table(profile).splitlines()
    assert lines[0] == "model.onnx on cpu: fastest, per device"
    assert lines[2].endswith("does not fit")
    assert lines[3].endswith("1.00x")
    assert lines[4].endswith("1.20x")


def test_profile_for_machines(profile) -> None:
    rows = json.loads(profile_json(profile))["profile"]
    assert [row["devices"] for row in rows] == [1, 2, 4]
    assert rows[0]["point"] is None
    assert rows[1]["point"]["mesh"] == [2, 2]
    lines = profile_csv(profile).splitlines()
    assert lines[0] == "devices,mesh," + ",".join(FIGURES)
    assert lines[1] == "1,,,,,,,,,"
    assert lines[3].startswith("4,4,0.001,")


def test_one_point_of_a_frontier_keeps_its_name(frontier) -> None:
    one = replace(frontier, chosen=frontier.points[1], narrowed=True)
    lines = frontier_table(one).splitlines()
    assert lines[0] == "model.onnx on 4 x cpu: one of 4 points, per device"
    assert [line.split()[0] for line in lines[1:-1]] == ["index", "1"]
    assert lines[2].endswith("  knee")
    document = json.loads(frontier_json(one))
    assert (document["chosen"], [point["marks"] for point in document["points"]]) == (1, [["knee"]])
    assert frontier_csv(one).splitlines()[1].endswith(",knee")
    assert len(frontier_csv(one).splitlines()) == 2


def test_the_point_taken_is_said_beside_all(frontier) -> None:
    document = json.loads(frontier_json(replace(frontier, chosen=frontier.points[3])))
    assert (document["chosen"], len(document["points"])) == (3, 4)


def steps(frontier):
    """Return the frontier with points of two training steps."""
    ways = ("none", "none", "light", "light")
    points = [replace(p, recompute=w) for p, w in zip(frontier.points, ways, strict=True)]
    return replace(frontier, points=points)


def test_points_of_several_steps_say_what_they_recompute(frontier) -> None:
    lines = frontier_table(steps(frontier)).splitlines()
    assert lines[1].startswith("index  recompute  mesh     time")
    assert lines[2].startswith("    0       none     4  1.00 ms")
    assert lines[4].startswith("    2      light   2x2  5.00 ms")
    assert frontier_csv(steps(frontier)).startswith("index,recompute,micro_batches,mesh,time_s,")
    assert json.loads(frontier_json(steps(frontier)))["points"][3]["recompute"] == "light"


def test_one_step_needs_no_column(frontier) -> None:
    one = replace(frontier, points=steps(frontier).points[:2])
    assert "recompute" not in frontier_table(one)
    assert [row.split(",")[1] for row in frontier_csv(one).splitlines()[1:]] == ["none", "none"]


def test_what_is_hidden_has_a_column_where_any_is(frontier) -> None:
    hiding = replace(frontier, points=[replace(frontier.points[0], hidden_s=1e-4)])
    header, row = frontier_table(hiding).splitlines()[1:3]
    assert "communication  hidden" in header
    assert "250 us  100 us" in row

"""Plans above the capacity of their device: marked in reports, neither picked nor compiled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import tensoropt as to
from tensoropt.compiler.cost import devices
from tensoropt.compiler.support.units import format_bytes

V100 = (Path(devices.__path__[0]) / "v100.toml").read_text(encoding="utf-8")
FLAGS = ("--devices", "2", "--epsilon", "0")

Make = Callable[[float | None], tuple[str, str]]


@pytest.fixture
def device(tmp_path: Path) -> Make:
    """Return the flags of a V100 with another capacity, or none."""

    def make(capacity_bytes: float | None) -> tuple[str, str]:
        line = "" if capacity_bytes is None else f"capacity_bytes = {capacity_bytes}"
        text = re.sub("capacity_bytes = .*", line, V100).replace('"v100"', '"small"')
        path = tmp_path / f"{capacity_bytes}.toml"  # descriptions are read once
        path.write_text(text, encoding="utf-8")
        return "--device", str(path)

    return make


@pytest.fixture
def sizes(opt, deep: Path, device: Make) -> list[int]:
    """The process bytes of the frontier on two devices of unknown capacity."""
    found = points(opt(deep, *FLAGS, *device(None), "--pareto", "--format", "json"))
    assert len(found) > 2
    return [point["process_bytes"] for point in found]


def points(outcome) -> list[dict[str, Any]]:
    assert outcome.status == 0
    found: list[dict[str, Any]] = json.loads(outcome.out)["points"]
    return found


def passed_over(size: int, capacity: int, chosen: int) -> str:
    return (
        f"note: point 0 needs {format_bytes(size)} per device, small has "
        f"{format_bytes(capacity)}: picked point {chosen}, which fits\n"
    )


def test_points_above_are_marked_and_have_no_name(opt, deep, device, sizes) -> None:
    own = device(sizes[1])
    for form in ("json", "csv", "table"):
        outcome = opt(deep, *FLAGS, *own, "--pareto", "--format", form)
        assert outcome.out.count("above capacity") == 1
        assert outcome.err == passed_over(sizes[0], sizes[1], 1)
    found = points(opt(deep, *FLAGS, *own, "--pareto", "--format", "json"))
    assert [own["index"] for own in found] == [*range(1, len(sizes)), 0]
    assert found[-1]["marks"] == ["above capacity"]
    assert found[0]["marks"][0] == "fastest"
    assert "leanest" in found[-2]["marks"]


def test_reports_begin_with_points_that_fit(opt, deep, device, sizes, tmp_path) -> None:
    own, page = device(sizes[1]), tmp_path / "a.html"
    title, _, *rows = opt(deep, *FLAGS, *own, "--pareto").out.splitlines()
    assert f", 1 above the {format_bytes(sizes[1])} of a device, per device" in title
    assert [row.split()[0] for row in rows[:-1]] == [*map(str, range(1, len(sizes))), "0"]
    table = opt(deep, *FLAGS, *own, "--pareto", "--format", "csv").out.splitlines()
    assert table[-1].startswith("0,")
    assert table[1].startswith("1,")
    document = opt(deep, *FLAGS, *own, "--pareto", "--format", "json", "--report", page).out
    assert json.loads(document)["above_capacity"] == 1
    listed = re.findall(r'"index": ?(\d+), ?"mesh"', page.read_text())
    assert listed == [*map(str, range(1, len(sizes))), "0"]
    assert "1 above the" in page.read_text()


def test_a_plan_is_the_fastest_that_fits(opt, deep, device, sizes, tmp_path) -> None:
    plan = tmp_path / "plan"
    outcome = opt(deep, *FLAGS, *device(sizes[1]), "-o", plan)
    assert (outcome.status, outcome.err) == (0, passed_over(sizes[0], sizes[1], 1))
    document = json.loads((plan / "plan.json").read_text())
    assert document["chosen"] == 1
    assert document["frontier"][0]["marks"] == ["above capacity"]


def test_an_index_above_is_refused(opt, refused, deep, device, sizes) -> None:
    own = device(sizes[1])
    message = refused(deep, *FLAGS, *own, "--pick", "0")
    most, capacity = format_bytes(sizes[0]), format_bytes(sizes[1])
    start = f"--pick 0: needs {most} per device, small has {capacity}; expected another point, "
    assert message.startswith(f"{start}more --devices, or --memory ")
    limit = message.split()[-1]
    assert opt(deep, *FLAGS, *own, "--pick", "0", "--memory", limit).status == 0


def test_memory_takes_the_place_of_the_capacity(opt, deep, device, sizes, tmp_path) -> None:
    memory = ("--memory", str(sizes[0]))
    outcome = opt(deep, *FLAGS, *device(sizes[1]), *memory, "--pareto", "-o", tmp_path / "plan")
    assert "above capacity" not in outcome.out
    assert "point 0 needs" not in outcome.err
    assert json.loads((tmp_path / "plan" / "plan.json").read_text())["chosen"] == 0


def test_no_plan_is_written_if_none_fits(opt, refused, deep, device, sizes, tmp_path) -> None:
    own, plan = device(1000), tmp_path / "plan"
    need = min(sizes)
    message = (
        f"--device small: nothing fits {format_bytes(1000)} on 2 devices, the leanest plan needs "
        f"{format_bytes(need)} ({need} bytes), {format_bytes(need - 1000)} more; "
        "expected more --devices (at least 8) or --memory with another limit"
    )
    assert refused(deep, *FLAGS, *own, "--emit", "search") == message
    message += " (nothing else helps: a process needs at least 2.00 KiB for weights alone)"
    table = opt(deep, *FLAGS, *own, "--pareto")
    assert (table.status, table.err) == (0, f"note: {message}\n")
    title, _, *rows = table.out.splitlines()[:-1]
    assert ", all above the 0.98 KiB of a device," in title
    assert [row.split("  ")[-1] for row in rows] == ["above capacity"] * len(sizes)
    found = json.loads(opt(deep, *FLAGS, *own, "--pareto", "--format", "json").out)
    assert (found["above_capacity"], found["chosen"]) == (len(sizes), None)
    assert [point["marks"] for point in found["points"]] == [["above capacity"]] * len(sizes)
    picked = [("--pick", name) for name in ("0", "fastest", "leanest", "knee")]
    page = "--report", tmp_path / "a.html"
    for flags in (("-o", plan), *picked, ("--explain",), page, ()):
        outcome = opt(deep, *FLAGS, *own, *flags)
        assert (outcome.status, outcome.out, outcome.err) == (3, "", f"error: {message}\n"), flags
    outcome = opt(deep, *FLAGS, *own, "--pareto", "-o", plan)
    assert (outcome.status, outcome.out) == (3, table.out)
    assert not plan.exists()
    assert [own.name for own in tmp_path.glob("*.html")] == []


def test_the_error_names_numbers_of_devices_that_may_fit(opt, tmp_path) -> None:
    """A weight of 1 TiB on devices of 80 GB."""
    size = 1 << 19
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name in "xy")
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size, size])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights.bin")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y],
        [weight])  # fmt: skip
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    outcome = opt(tmp_path / "m.onnx", "--device", "h100", "--mesh", "8")
    assert outcome.status == 3
    assert "the leanest plan needs 128 GiB (137441312768 bytes), 53.5 GiB more" in outcome.err
    assert "; expected more --devices (at least 16) or --memory with another" in outcome.err


def test_an_error_names_the_flags_that_stay(opt, deep, device) -> None:
    step = "--train", "--loss", "mse:y,t", "--recompute", "none", "--micro-batches", "1"
    outcome = opt(deep, *FLAGS, *step, *device(1000))
    assert outcome.err.endswith(
        "; expected more --devices (at least 32) or --memory with another limit (nothing else "
        "helps: a process needs at least 6.00 KiB for weights and states alone; kept: --recompute "
        "none --micro-batches 1)\n"
    )


def test_no_point_has_a_name_if_none_fits_in_python(deep, device) -> None:
    frontier = to.load(deep).frontier(devices=2, epsilon=0, device=device(1000)[1])
    assert frontier[0].marks == ("above capacity",)
    assert ", all above the 0.98 KiB of a device," in repr(frontier)
    for name in ("fastest", "leanest", "knee"):
        with pytest.raises(to.DoesNotFitError, match=r"more devices \(at least 8\) or memory"):
            getattr(frontier, name)


def test_data_frames_begin_with_points_that_fit(deep, device, sizes) -> None:
    pytest.importorskip("pandas")
    frontier = to.load(deep).frontier(devices=2, epsilon=0, device=device(sizes[1])[1])
    assert [*frontier.to_pandas().index] == [*range(1, len(sizes)), 0]


def test_reports_mark_points_above(opt, deep, device, sizes, tmp_path) -> None:
    page, picture = tmp_path / "a.html", tmp_path / "a.svg"
    flags = (*FLAGS, *device(sizes[1]), "--explain", "--report", page, "--plot", picture)
    text = opt(deep, *flags).out
    assert "the next faster point, 0 (above capacity): " in text
    assert re.search(r'"marks": ?\["above capacity"\]', page.read_text())
    assert "<!-- above capacity -->" in picture.read_text()


def test_numbers_of_devices_obey_the_capacity(opt, refused, deep, device, sizes) -> None:
    """Both objectives take only plans that fit."""
    own = device(min(sizes))
    counts = ("--devices", "4", "--epsilon", "0", *own)
    outcome = opt(deep, *counts, "--objective", "devices", "--pareto", "--format", "json")
    kept = [point for point in points(outcome) if "above capacity" not in point["marks"]]
    assert points(outcome)[0]["mesh"] == [2]
    assert [point["process_bytes"] for point in kept] == [min(sizes)]
    outcome = opt(deep, *counts, "--objective", "profile", "--format", "json")
    rows = [row["point"] for row in json.loads(outcome.out)["profile"]]
    assert rows[0] is None
    assert [row["process_bytes"] <= min(sizes) for row in rows[1:]] == [True, True]
    message = refused(deep, *FLAGS, *device(None), "--objective", "devices")
    assert message == (
        "--objective devices: expected --memory SIZE, the memory of one device, "
        "as small has no capacity_bytes"
    )


@pytest.mark.parametrize("capacity", [1000, None])
def test_integer_programs_obey_the_capacity(opt, deep, device, sizes, capacity) -> None:
    """Where nothing fits, the point is shown."""
    pytest.importorskip("highspy")
    own = device(capacity or sizes[1])
    flags = ("--devices", "2", "--search", "ilp", *own, "--pareto", "--format", "json")
    found = points(opt(deep, *flags))
    assert all(("above capacity" in point["marks"]) == (capacity == 1000) for point in found)


def test_steps_in_stages_obey_the_capacity(opt, refused, deep, device, tmp_path) -> None:
    asked = (*FLAGS, "--train", "--loss", "mse:y,t", "--stages", "2", "--micro-batches", "4")
    table = ("--pareto", "--format", "json")
    sizes = [own["process_bytes"] for own in points(opt(deep, *asked, *device(None), *table))]
    assert sizes[0] > sizes[-1]
    plan = tmp_path / "plan"
    assert opt(deep, *asked, *device(sizes[0] - 1), "-o", plan).status == 0
    written = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
    assert written["predicted"]["process_bytes"] < sizes[0]
    none = tmp_path / "none"
    outcome = opt(deep, *asked, *device(sizes[-1] // 2), "-o", none)
    assert (outcome.status, "nothing fits" in outcome.err) == (3, True)
    assert not none.exists()

"""Frontiers from Python: what is in them, what is picked, and what is refused."""

from __future__ import annotations

import gc
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from graphs.bert import Bert

import tensoropt as to
from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.cost import devices

EMPTY = "nothing fits 1 B on 2 devices, the leanest plan needs "


def test_it_is_a_sequence(frontier: to.Frontier) -> None:
    points = list(frontier)
    assert len(points) == len(frontier) > 1
    assert [point.index for point in points] == list(range(len(points)))
    assert frontier[-1].index == frontier[len(points) - 1].index == points[-1].index
    assert points[0].time_s < points[-1].time_s
    assert points[0].memory_bytes > points[-1].memory_bytes
    with pytest.raises(IndexError, match=f"one of {len(points)} points, from 0 on, got: 99"):
        frontier[99]


def test_points_are_the_same_wherever_they_come_from(frontier: to.Frontier) -> None:
    assert frontier.leanest == frontier[-1] != frontier[0]
    assert frontier.index(frontier.leanest) == len(frontier) - 1
    assert frontier[0] not in frontier[1:]
    assert len({*frontier, *frontier}) == len(frontier)


def test_annotations_that_were_not_asked_for_are_noted(mlp: Path, tmp_path: Path) -> None:
    proto = onnx.load(mlp)
    proto.configuration.add(name="of two", num_devices=2)
    path = tmp_path / "annotated.onnx"
    onnx.save(proto, path)
    notes = to.load(path, dims={"batch": 8}).frontier(devices=1).notes
    assert any("has annotations for the configuration 'of two', which are ignored" in note
               for note in notes)  # fmt: skip


def test_picks(frontier: to.Frontier) -> None:
    assert frontier.fastest.index == frontier.pick("fastest").index == 0
    assert frontier.leanest.index == frontier.pick("leanest").index == frontier[-1].index
    assert "knee" in frontier.knee.marks
    assert frontier.pick(1).index == 1
    with pytest.raises(to.UserError, match=r"^pick: expected the index of a point that fits"):
        frontier.pick(99)


def test_slices_are_frontiers(frontier: to.Frontier) -> None:
    rest = frontier[1:]
    assert isinstance(rest, to.Frontier)
    assert [point.index for point in rest] == list(range(1, len(frontier)))
    assert rest.fastest.index == 1
    assert len(frontier[99:]) == 0
    with pytest.raises(to.UserError, match="expected a frontier with points, got: an empty one"):
        _ = frontier[99:].knee


def test_what_fits(frontier: to.Frontier) -> None:
    least = min(point.process_bytes for point in frontier)
    assert [point.process_bytes for point in frontier.fits(least)] == [least]
    assert len(frontier.fits("16GiB")) == len(frontier)
    assert not frontier.fits(1)
    with pytest.raises(to.UserError, match=re.escape(EMPTY)):
        _ = frontier.fits(1).fastest
    with pytest.raises(to.UserError, match=r"^memory: expected a positive amount such as 16GiB"):
        frontier.fits("lots")


def test_a_limit_leaves_the_points_that_fit(model: to.Model, frontier: to.Frontier) -> None:
    least = min(point.process_bytes for point in frontier)
    lean = model.frontier(devices=2, epsilon=0, memory=least)
    assert [point.process_bytes for point in lean] == [least]
    assert len(lean.whole) >= len(frontier)  # also what only its process speaks for
    with pytest.raises(to.UserError, match=re.escape(EMPTY)):
        model.frontier(devices=2, memory="1B")


def test_points_above_the_capacity(model: to.Model, tmp_path: Path) -> None:
    sizes = [point.process_bytes for point in model.frontier(devices=2, epsilon=0, device="v100")]
    v100 = (Path(devices.__path__[0]) / "v100.toml").read_text(encoding="utf-8")
    small = tmp_path / "small.toml"
    small.write_text(v100.replace("32e9", str(sizes[1])), encoding="utf-8")
    own = model.frontier(devices=2, epsilon=0, device=small)
    assert [point.is_above_capacity for point in own] == [size > sizes[1] for size in sizes]
    assert own[0].marks == ("above capacity",)
    assert (own[1].marks[0], own.fastest.index, own.knee.is_above_capacity) == ("fastest", 1, False)
    assert own.fastest.notes[0].startswith("note: point 0 needs ")
    assert own[1].notes == ()
    with pytest.raises(to.UserError, match=r"^pick 0: needs .* more devices, or memory \d+"):
        own.pick(0)
    with pytest.raises(to.UserError, match=r"^point 0: needs .*; expected another point, "):
        own[0].compile(tmp_path / "plan")
    free = model.frontier(devices=2, epsilon=0, device=small, memory="1GiB")
    assert (free.fastest.index, free.fastest.marks[0]) == (0, "fastest")
    rows = model.profile(2, device=small, epsilon=0)
    assert rows[1].fastest.process_bytes <= sizes[1]


def test_other_devices_of_the_same_model(model: to.Model, frontier: to.Frontier) -> None:
    four = model.frontier(devices=4, device="h200", mesh=(2, 2))
    assert (four.devices, four.device, four[0].mesh) == (4, "h200", (2, 2))
    again = model.frontier(devices=2, epsilon=0)
    assert [point.time_s for point in again] == [point.time_s for point in frontier]


def test_cuda_graphs_save_launches(model: to.Model) -> None:
    each, once = (
        model.frontier(devices=2, device="h200", launch=how) for how in ("nodes", "graph")
    )
    assert once.fastest.time_s < each.fastest.time_s


def test_fewest_devices(model: to.Model, frontier: to.Frontier) -> None:
    lean = model.frontier(devices=2, epsilon=0, device="v100").leanest
    found = model.fewest_devices(lean.process_bytes, most=8, device="v100")
    assert found.devices == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 0}, "devices: expected a whole number from 1 to 1024, got: '0'"),
        ({"devices": "two"}, "devices: expected a whole number from 1 to 1024, got: 'two'"),
        ({"mesh": (2, 0)}, "mesh: expected positive sizes such as 2x4, got: '2x0'"),
        ({"mesh": "3", "devices": 2}, "mesh: 3 has 3 ranks, expected 2 as in 2, got: '3'"),
        (
            {"mesh": (2, 2), "stages": 3, "devices": 8},
            "mesh: 2x2 on 3 stages has 12 ranks, expected 8, got: '2x2'",
        ),
        (
            {"mesh": "2", "devices": 64},
            "mesh: 2 has 2 ranks, expected 64 as in 64, 2x32, 2x2x16, 2x2x2x8, 2x2x2x2x4, "
            "2x2x2x2x2x2, 2x2x2x4x2, 2x2x4x4, got: '2'",
        ),
        ({"device": "h20"}, "device: expected one of a100, b200, b300, cpu, gb200, "),
        ({"memory": "lots"}, "memory: expected a positive amount such as 16GiB"),
        ({"search": "best"}, "search: unknown search 'best', valid choices are ft, pase"),
        ({"epsilon": 2}, "epsilon: expected a number from 0 to 1, got: '2'"),
        ({"seed": 1}, "seed belongs to search autoddl, mcmc or random, got: search ft"),
        ({"search_time": -1}, "search_time: expected seconds, at least 0, got: '-1'"),
        ({"search_memory": 0}, "search_memory: expected a positive amount such as 16GiB"),
        ({"overlap": "on"}, "overlap: unknown choice 'on', valid choices are auto, off"),
        ({"pins": "w1=T"}, "pin 'w1=T': placement: expected R, S(<dim>)"),
        ({"pins": Path("none.toml")}, "pins none.toml: no such file or directory"),
        ({"strategies": "none.json"}, "strategies none.json: no such file or directory"),
        ({"strategies": "a.json", "seed": 1}, "strategies fixes the plan, expected no seed"),
    ],
)
def test_what_is_refused(model: to.Model, options: dict[str, object], message: str) -> None:
    with pytest.raises(to.UserError, match=f"^{re.escape(message)}"):
        model.frontier(**options)  # type: ignore[arg-type]


def test_other_arguments_are_refused(model: to.Model) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'pick'"):
        model.frontier(devices=2, pick="knee")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'mesh'"):
        model.profile(devices=2, mesh="2")  # type: ignore[call-arg]


def test_the_text_is_that_of_the_command(
    mlp: Path, frontier: to.Frontier, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--pareto", "--devices", "2", "--epsilon", "0", "--dim", "batch=8"]
    assert main([str(mlp), *flags]) == 0
    assert capsys.readouterr().out == f"{frontier}\n"


def test_errors_name_arguments_where_those_of_the_command_name_flags(
    mlp: Path, model: to.Model, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(mlp), "--dim", "batch=8", "--devices", "2", "--memory", "1B"]) == 3
    with pytest.raises(to.UserError) as refused:
        model.frontier(devices=2, memory=1)
    assert capsys.readouterr().err == f"error: --{refused.value}\n"


@pytest.mark.parametrize("method", [to.Model.frontier, to.Model.fewest_devices, to.Model.profile])
def test_all_arguments_are_documented(method: Callable[..., object]) -> None:
    text = inspect.getdoc(method) or ""
    names = [*inspect.signature(method).parameters][1:]
    assert "epsilon" in names
    assert [name for name in names if f"``{name}``" not in text] == []


def test_data_frame(frontier: to.Frontier) -> None:
    pytest.importorskip("pandas")
    table = frontier.to_pandas()
    assert list(table["time_s"]) == [point.time_s for point in frontier]
    assert table.loc[0, "marks"].startswith("fastest")
    assert list(table["mesh"]) == ["2"] * len(frontier)


def test_what_a_data_frame_needs(frontier: to.Frontier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    message = "to_pandas needs pandas, expected: pip install 'tensoropt[pandas]'"
    with pytest.raises(to.UserError, match=re.escape(message)):
        frontier.to_pandas()


def test_in_a_notebook(frontier: to.Frontier) -> None:
    shown = frontier._repr_html_()
    assert shown.count("<svg") == 1
    assert shown.count("<tr>") == 1 + len(frontier)
    assert "mlp.onnx on 2 x cpu" in shown
    assert "<script" not in shown
    assert "<svg" not in frontier[99:]._repr_html_()
    assert "leanest" in frontier.leanest._repr_html_()


def test_names_are_escaped(mlp: Path, tmp_path: Path) -> None:
    odd = tmp_path / "<b>&.onnx"
    odd.write_bytes(mlp.read_bytes())
    shown = to.load(odd).frontier(devices=1)._repr_html_()
    assert "<b>" not in shown
    assert "&lt;b&gt;&amp;.onnx" in shown


def test_picture(frontier: to.Frontier, tmp_path: Path) -> None:
    frontier.plot(tmp_path / "frontier.svg")
    assert (tmp_path / "frontier.svg").stat().st_size > 1000
    with pytest.raises(to.UserError, match=r"expected a file ending in \.png or \.svg"):
        frontier.plot(tmp_path / "frontier.gif")


def test_progress(model: to.Model, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    to.load(model.path, dims=model.dims, progress=said.append)
    assert said == [f"reading {model.path}"]
    model.frontier(devices=2, progress=said.append)
    assert any("mesh" in line for line in said)
    assert capsys.readouterr() == ("", "")
    model.frontier(devices=2, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "mesh" in err


def test_what_it_explains(frontier: to.Frontier) -> None:
    point = frontier.leanest
    explained = point.explain()
    assert (explained.data.index, explained.data.time_s) == (point.index, point.time_s)


def test_ctrl_c_keeps_what_was_found(model: to.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensoropt.compiler.planning import objectives

    search = objectives.search

    def interrupted(*asked):
        answered, result = search(*asked)
        return answered, replace(result, interrupted=True)

    monkeypatch.setattr(objectives, "search", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        model.frontier(devices=2, epsilon=0)
    assert isinstance(stopped.value, to.Interrupted)
    assert stopped.value.frontier.is_interrupted
    assert stopped.value.frontier.notes[0].startswith("interrupted: these are the results so far")
    assert len(stopped.value.frontier) > 1


@pytest.mark.parametrize(("batch", "least", "most"), [(1, 0.5, 0.75), (8, 0.99, 1.0)])
def test_weights_are_split_where_they_take_longer_to_read_than_ranks_wait(
    tmp_path: Path, batch: int, least: float, most: float
) -> None:
    model = Bert(layers=2, width=512, heads=8, vocabulary=512, sequence=128, batch=batch)
    path = model.build("bert").save(tmp_path, seed=0)
    whole = sum(file.stat().st_size for file in tmp_path.iterdir())
    kept = to.load(path).frontier(devices=2, epsilon=0.1).fastest.static_bytes
    assert least <= kept / whole <= most


def test_a_model_in_memory_is_refused() -> None:
    with pytest.raises(to.UserError, match=r"expected the path of a file, got: ModelProto .*saved"):
        to.load(onnx.ModelProto())  # type: ignore[arg-type]


def test_points_that_were_annotated_do_not_stay_in_memory(model: to.Model, tmp_path: Path) -> None:
    own, counts = model.frontier(devices=2, epsilon=0), list[int]()
    for point in (own[0], own[1]):
        point.annotate(tmp_path / "annotated.onnx")
        gc.collect()  # garbage of other tests may come and go between the counts
        counts.append(own._whole.program.module.context._get_live_module_count())
    assert counts[0] == counts[1]

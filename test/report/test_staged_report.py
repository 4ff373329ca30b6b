"""Reports of a step in stages: its text, its data, its plot and its page in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import NEEDS_BROWSER
from graphs.gpt import Gpt
from report_pages import Open, data_of, press, text

import tensoropt as to
from tensoropt.compiler.report.explain.text import explanation_text
from tensoropt.compiler.report.explanation import Explanation

STAGES, BATCHES = 2, 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> to.Model:
    gpt = Gpt(layers=6, width=64, heads=4, vocabulary=96, sequence=16, batch=2, dtype="float32")
    return to.load(gpt.build("gpt").save(tmp_path_factory.mktemp("gpt")))


@pytest.fixture(scope="module")
def found(model: to.Model) -> to.Frontier:
    train = to.Training("softmax-cross-entropy:scores,labels", micro_batches=BATCHES)
    asked = {"stages": STAGES, "schedule": "zb-v", "search": "expert"}
    return model.frontier(4, device="h100", train=train, **asked)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plan(found: to.Frontier) -> Explanation:
    return found.fastest.explain().data


def test_the_figures_are_those_of_the_pipeline(found: to.Frontier, plan: Explanation) -> None:
    point, staged = found.fastest, plan.staged
    assert staged is not None
    assert (plan.devices, plan.time_s, plan.process_bytes) == (
        4,
        point.time_s,
        point.process_bytes,
    )
    assert len(staged.tasks) == 2 * STAGES * BATCHES * 3
    for stage, row in enumerate(staged.stages):
        own = [task for task in staged.tasks if task.stage == stage]
        assert row.busy_s == pytest.approx(sum(task.end_s - task.start_s for task in own))
        assert row.busy_s + row.idle_s == pytest.approx(staged.end_s)
        assert row.memory_bytes > row.static_bytes + row.kept_bytes
    first, last = staged.stages
    assert (first.chunks, last.chunks) == ((0, 3), (1, 2))
    assert (first.sends_to, last.sends_to) == ((1,), (0,))
    assert first.sent_bytes == last.sent_bytes > 0


def test_the_text_has_a_line_per_stage(plan: Explanation) -> None:
    lines = explanation_text(plan).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("pipeline: 2 stages of mesh"))
    assert "zb-v, 4 micro-batches; a stage has no task for" in lines[at]
    assert lines[at + 1].split()[:4] == ["stage", "chunks", "busy", "idle"]
    assert lines[at + 2].split()[:2] == ["0", "0,3"]
    drawn = [line.split()[1] for line in lines[at + 5 : at + 7]]
    assert all(set(line) <= set("FBW.") and len(line) == 80 for line in drawn)
    assert drawn[0].startswith("F")
    assert drawn[1].startswith(".")


def test_neighbours_have_other_stages_and_schedules(model: to.Model) -> None:
    train = to.Training("softmax-cross-entropy:scores,labels", micro_batches=BATCHES)
    found = model.frontier(4, device="h100", train=train, stages="auto", search="expert")  # type: ignore[arg-type]
    lines = [line for point in found for line in point.explain().text().splitlines()]
    near = [line for line in lines if line.startswith("the next ")]
    assert any(", schedule " in line for line in near)
    assert any(" stages of " in line for line in near)


def test_the_page_has_the_tasks(found: to.Frontier, tmp_path: Path) -> None:
    found.report(tmp_path / "a.html")
    data = data_of((tmp_path / "a.html").read_text())
    assert len(data["stages"]["tasks"]) == 2 * STAGES * BATCHES * 3
    assert [row["chunks"] for row in data["stages"]["rows"]] == [[0, 3], [1, 2]]
    assert "2 stages of mesh" in data["head"]["line"]
    assert data["frontier"]["points"][0]["mesh"].startswith("2 stages of ")


@NEEDS_BROWSER
def test_the_page_in_a_browser(opened: Open, found: to.Frontier, tmp_path: Path) -> None:
    found.report(tmp_path / "a.html")
    seen = opened((tmp_path / "a.html").read_text())
    seen.until("document.querySelectorAll('#stages .fill.static').length")
    assert seen.run("document.querySelectorAll('#stages-table tbody tr').length") == STAGES
    assert seen.run("document.querySelector('#stages').getBoundingClientRect().height") > 40
    seen.run("document.querySelector('#stages').focus()")
    press(seen, "ArrowRight")
    seen.until("document.querySelector('#stages-at').textContent.startsWith('stage 0 · forward')")
    press(seen, "ArrowDown")
    seen.until("document.querySelector('#stages-at').textContent.startsWith('stage 1')")
    assert "zb-v" in text(seen, "#stages-about")


def test_a_page_without_stages_shows_none(tmp_path: Path) -> None:
    model = to.load(Path(__file__).parents[1] / "models" / "gpt2_tiny.onnx")
    model.frontier(2, epsilon=1.0).report(tmp_path / "a.html")
    assert data_of((tmp_path / "a.html").read_text())["stages"] is None


def test_the_plot_has_the_stages(found: to.Frontier, tmp_path: Path) -> None:
    found.plot(tmp_path / "a.svg", found.fastest)
    found.plot(tmp_path / "b.svg")
    sizes = [(tmp_path / name).stat().st_size for name in ("a.svg", "b.svg")]
    assert sizes[0] > sizes[1]

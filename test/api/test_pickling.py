"""Copies and pickles of models, frontiers, points and plans, as Ray and multiprocessing need."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import pickled_calls
import pytest

import tensoropt as to

STEP = to.Training("mse:y,labels", optimizer="sgd", micro_batches="1..2")


def in_process(function: Any, *given: Any) -> Any:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function, *given).result(timeout=120)


@pytest.fixture
def relative(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> to.Model:
    """A model that was loaded by a relative path."""
    monkeypatch.chdir(mlp.parent)
    return to.load(mlp.name, dims={"batch": 8})


def test_another_process_plans_and_compiles(relative: to.Model, tmp_path: Path) -> None:
    frontier = relative.frontier(2, epsilon=0)
    assert in_process(pickled_calls.planned, relative) == repr(frontier)
    (tmp_path / "other").mkdir()
    expected = pickled_calls.compiled(frontier.knee, tmp_path / "plan")
    assert in_process(pickled_calls.compiled, frontier.knee, tmp_path / "other/plan") == expected
    documents = [(tmp_path / name / "plan.json").read_text() for name in ("plan", "other/plan")]
    assert documents[0] == documents[1]
    plan = to.Plan(tmp_path / "plan")
    assert in_process(pickled_calls.layouts, plan) == pickled_calls.layouts(plan)


@pytest.mark.parametrize(
    "options",
    [
        {"devices": 2},
        {"devices": 4, "stages": 2},
        {"devices": 2, "train": STEP},
        {"devices": 4, "stages": 2, "train": STEP},
        {"devices": 2, "memory": "92MiB"},
        {"devices": "h100:2,v100:2", "train": STEP},
        {"devices": 2, "pins": ["w1=R"]},
    ],
)
def test_a_frontier_is_the_same_after_pickling(
    model: to.Model, options: dict[str, Any], tmp_path: Path
) -> None:
    frontier = model.frontier(epsilon=0.05, **options)
    again = pickle.loads(pickle.dumps(frontier))
    assert repr(again) == repr(frontier)
    assert again[0].notes == frontier[0].notes
    assert repr(again[-1].explain()) == repr(frontier[-1].explain())
    for own, name in ((frontier[-1], "before"), (again[-1], "after")):
        own.compile(tmp_path / name)
    before, after = (tmp_path / name / "plan.json" for name in ("before", "after"))
    assert before.read_text() == after.read_text()


def test_forms_and_numbers_of_devices_can_be_pickled(model: to.Model, mlp: Path) -> None:
    other = mlp.with_name("other.onnx")
    other.write_bytes(mlp.read_bytes())
    forms = model.frontier(2, epsilon=0, also=[to.load(other, dims={"batch": 4})])
    assert repr(pickle.loads(pickle.dumps(forms))) == repr(forms)
    scaling = model.profile(2, epsilon=0.05)
    assert repr(pickle.loads(pickle.dumps(scaling))) == repr(scaling)
    assert repr(pickle.loads(pickle.dumps(scaling[1]))) == repr(scaling[1])


def test_a_changed_model_is_refused(mlp: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(mlp.read_bytes())
    content = pickle.dumps(to.load(path, dims={"batch": 8}).frontier(2, epsilon=0).knee)
    changed = onnx.load(path)
    changed.graph.node[1].op_type = "Sigmoid"
    onnx.save(changed, path)
    with pytest.raises(to.UserError, match=r"m\.onnx: has changed since its plans were pickled"):
        pickle.loads(content)


def test_copies_are_the_objects_themselves(
    model: to.Model, frontier: to.Frontier, plan: to.Plan
) -> None:
    for own in (model, frontier, frontier.knee, plan):
        assert copy.copy(own) is own
        assert copy.deepcopy([own])[0] is own


def test_sessions_are_not_copied(plan: to.Plan) -> None:
    with plan.session(threads=1) as session:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="a Session belongs to its process, expected a new"):
                copied(session)


def test_exceptions_keep_their_text_and_results(frontier: to.Frontier) -> None:
    run = to.TrainingRun(type("Result", (), {"step": 3, "checkpoint": "c"}), (), (), (), {})  # type: ignore[arg-type]
    interrupted = to.Interrupted(frontier)
    assert str(interrupted) == (
        f"the search was interrupted, .frontier has the {len(frontier)} points found until then"
    )
    expected = "training was interrupted after step 3, the checkpoint is c"
    assert str(to.TrainingInterrupted(run)) == expected
    again = pickle.loads(pickle.dumps(interrupted))
    assert (str(again), repr(again.frontier)) == (str(interrupted), repr(frontier))
    for kind in (to.UserError, to.DoesNotFitError, to.RankFailedError, to.TensoroptError):
        assert str(pickle.loads(pickle.dumps(kind("why")))) == "why"


def test_every_public_exception_has_a_text() -> None:
    kinds = [own for name in to.__all__ if isinstance(own := getattr(to, name), type)]
    names = {own.__name__ for own in kinds if issubclass(own, BaseException)}
    tested = {"UserError", "DoesNotFitError", "RankFailedError", "TensoroptError"}
    assert names == tested | {"Interrupted", "TrainingInterrupted"}

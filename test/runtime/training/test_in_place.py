"""State written over itself, against the same graphs with arrays of their own for every step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from handmade_classifier import Classifier

from tensoropt.runtime.ops import library
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.session import rank_session
from tensoropt.runtime.training.data.open import open_dataset
from tensoropt.runtime.training.data.source import Source
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held
from tensoropt.runtime.training.step import ROLES, TrainingStep

STEPS, RATE = 50, 0.01


def batch(plan: TrainingPlan, data: Source, micro: int) -> dict[str, np.ndarray]:
    whole = {t.name: tuple(slice(0, n) for n in t.shape) for t in plan.plan.inputs}
    return data.read(micro * plan.batch, whole)


def in_place(plan: TrainingPlan, data: Source) -> tuple[list[float], Held]:
    held = Held(plan, 0)
    step = TrainingStep(plan, held, 1)
    held.load()
    losses, micro = [], 0
    step.set("learning_rate", RATE)
    for number in range(1, STEPS + 1):
        step.start()
        step.set("step", number)
        for _ in range(plan.micro_batches):
            step.set("seed", micro)
            step.feed(batch(plan, data, micro))
            losses.append(step.forward_backward().loss)
            micro += 1
        step.update.run()
    return losses, held


def apart(plan: TrainingPlan, data: Source) -> tuple[list[float], dict[str, np.ndarray]]:
    """The same, every output an array that ONNX Runtime makes."""
    first, second = (rank_session(p, 1) for p in (plan.graph(0, role) for role in ROLES))
    held = Held(plan, 0)
    held.load()
    values = {name: array.get() for name, array in held.state.items()}
    losses, micro = [], 0
    for number in range(1, STEPS + 1):
        values |= {h.name: scalar(h, number) for h in plan.hyper}
        values |= {g.accumulator: 0 * values[g.of] for g in plan.gradients if g.accumulator}
        for _ in range(plan.micro_batches):
            values |= batch(plan, data, micro)
            values |= {h.name: np.array(micro, h.dtype) for h in plan.hyper if h.role == "seed"}
            found = ran(first, values)
            losses.append(float(found[plan.loss_output]))
            replace(plan, "gradients", values, found)
            values |= {g.accumulator or g.tensor.name: found[g.tensor.name] for g in plan.gradients}
            micro += 1
        values |= {g.tensor.name: found[g.tensor.name] for g in plan.gradients}
        replace(plan, "update", values, ran(second, values))
    return losses, values


def scalar(hyper, number: int) -> np.ndarray:
    held = {"learning_rate": RATE, "step": number}
    return np.array(held.get(hyper.role, 1), hyper.dtype)


def ran(session, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    for name in session.inputs:
        session.feed(name, values[name])
    session.run()
    return session.fetch()


def replace(plan: TrainingPlan, graph: str, values, found) -> None:
    values |= {s.name: found[s.result] for s in plan.state if s.graph == graph}


@pytest.mark.parametrize("micro", [1, 3])
def test_fifty_steps(classifier: Classifier, data: Path, tmp_path: Path, micro: int) -> None:
    library.start()  # the collectives need MPI, among one rank too
    plan = TrainingPlan.from_plan(Plan.load(classifier.plan(tmp_path / "plan", 1, micro=micro)))
    dataset = open_dataset(data, plan.plan.inputs, plan.batch)
    (losses, held), (expected, state) = in_place(plan, dataset), apart(plan, dataset)
    assert losses == expected
    assert all(np.array_equal(held.state[name].get(), state[name]) for name in held.state)

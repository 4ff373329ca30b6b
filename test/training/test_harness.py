"""The harness itself: it must see a wrong gradient, and run what training forms ask for."""

from __future__ import annotations

import numpy as np
import pytest
from training.harness import Vjp, check_node, ints, node_model, normal

from tensoropt.compiler.training.gradients import registry


def test_right_gradients_pass() -> None:
    vjp = check_node("Mul", [normal(3, 4), normal(4)], torch=lambda a, b: a * b)
    assert set(vjp.ops) <= {"Mul", "ReduceSum", "Identity"}


def test_literals_have_no_gradient() -> None:
    vjp = check_node(
        "ReduceSum", [normal(2, 3), ints(1)], literals={1}, torch=lambda x, _: x.sum(1, True)
    )
    assert list(vjp.gradients) == ["x0"]


def test_float32_and_float16() -> None:
    check_node("Relu", [normal(50, dtype=np.float32)], torch=lambda x: x.relu())
    check_node("Relu", [normal(50, dtype=np.float16)], torch=lambda x: x.relu())


@pytest.mark.parametrize("torch", [None, lambda a, b: a * b])
def test_a_wrong_gradient_is_seen(monkeypatch: pytest.MonkeyPatch, torch: object) -> None:
    def wrong(b: registry.Backward) -> registry.Gradients:
        return [b.dy, b.dy]

    monkeypatch.setitem(registry._GRADIENTS, "Sub", wrong)
    with pytest.raises(AssertionError, match="gradient of x1"):
        check_node("Sub", [normal(3), normal(3)], torch=torch)


def test_seed_buffers_and_kept_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def form(f: registry.ForwardOp) -> list[object]:
        f.saved["twice"] = f.make.scaled(f.operands[0], 2.0)
        f.make.cast(f.training.seed(), f.operands[0].type.element_type)
        f.training.update(f.operands[1], f.make.scaled(f.operands[1], 3.0))
        return [f.make.mul(f.operands[0], f.operands[0])]

    def kept(b: registry.Backward) -> registry.Gradients:
        return [b.make.mul(b.dy, b.saved("twice")), None]

    monkeypatch.setitem(registry._FORMS, "Sub", form)
    monkeypatch.setitem(
        registry._GRADIENTS, "Sub", lambda b: [b.make.mul(b.dy, b.saved("twice")), None]
    )
    x, y = normal(3), normal(3, seed=1)
    vjp = check_node("Sub", [x, y], same_forward=False)
    run = vjp.run({"x0": x, "x1": y}, {"y0": np.ones(3)})
    np.testing.assert_allclose(run.buffers["x1"], 3 * y)
    assert run.gradients["x1"] is None


def test_the_function_itself() -> None:
    vjp = Vjp(node_model("Mul", [normal(3), normal(3)]), wanted=["x1"])
    x, y, w = normal(3), normal(3, seed=1), normal(3, seed=2)
    np.testing.assert_allclose(vjp.run({"x0": x, "x1": y}, {"y0": w}).gradients["x1"], w * x)

"""The loss on held-out data during training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from handmade import edit
from handmade_training import LeastSquares

import tensoropt as to
from tensoropt.runtime.support.errors import UserError

RATE = 0.05


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LeastSquares:
    return LeastSquares(tmp_path_factory.mktemp("least_squares"))


def drawn(samples: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    x, t = random.standard_normal((samples, 3)), random.standard_normal((samples, 1))
    return {"x": x.astype(np.float32), "t": t.astype(np.float32)}


def test_the_loss_on_held_out_data_is_that_of_the_weights_after_a_step(
    model: LeastSquares, tmp_path: Path
) -> None:
    """Of nine samples, two batches of four are read; training is as without them."""
    plan, data, held_out = model.plan(tmp_path / "plan"), drawn(8, 1), drawn(9, 2)
    options = {"learning_rate": RATE}
    run = to.train(plan, data, 5, evaluate_data=held_out, evaluate_every=2, **options)
    assert run.losses == to.train(plan, data, 5, **options).losses
    assert [*run.evaluation_losses] == [2, 4, 5]
    for steps, found in run.evaluation_losses.items():
        batches = [(data["x"][i : i + 4], data["t"][i : i + 4]) for i in (0, 4)] * 3
        after = [
            model.losses(
                [*batches[:steps], (held_out["x"][i : i + 4], held_out["t"][i : i + 4])], RATE
            )[-1]
            for i in (0, 4)
        ]
        assert found == pytest.approx(np.mean(after), rel=1e-4)
    assert run.result.evaluation_loss == run.evaluation_losses[5]


def test_jobs_without_an_evaluation_are_refused(model: LeastSquares, tmp_path: Path) -> None:
    plan, data = model.plan(tmp_path / "plan"), drawn(8, 1)
    for options, message in (
        ({"evaluate_every": 2}, "evaluate_every: expected evaluate_data too"),
        ({"evaluate_data": drawn(3, 1)}, "evaluate_data: expected at least a batch of 4, got: 3"),
        ({"evaluate_data": {"x": data["x"]}}, "evaluate_data: input 't' is missing"),
    ):
        with pytest.raises(UserError, match=message):
            to.train(plan, data, 1, **options)
    edit(plan, lambda content: content["training"]["hyper"][0].update(role="seed"))
    with pytest.raises(UserError, match=r"evaluate_data: .* has dropout, expected a model with"):
        to.train(plan, data, 1, evaluate_data=data)


def test_running_statistics_are_refused(train, plans, data) -> None:
    with pytest.raises(UserError, match="has batch normalisation, expected a model with the same"):
        train(plans["data2"], 1, evaluate_data=str(data))


ENDLESS = """
import itertools
import numpy as np
class Samples:
    def seek(self, position):
        pass
    def __iter__(self):
        return itertools.repeat({"x": np.ones(3, np.float32), "t": np.ones(1, np.float32)})
"""

BROKEN = """
import numpy as np
class Samples:
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 6:
            raise ValueError("no such picture")
        return {"x": np.ones(3, np.float32), "t": np.ones(1, np.float32)}
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (ENDLESS, "has no end, expected a number of samples"),
        (BROKEN, "evaluation after step 1: .*no such picture"),
    ],
)
def test_faulty_held_out_data(
    model: LeastSquares, tmp_path: Path, source: str, message: str
) -> None:
    (tmp_path / "held_out.py").write_text(source)
    plan, held_out = model.plan(tmp_path / "plan", 1), f"{tmp_path / 'held_out.py'}:Samples"
    with pytest.raises((UserError, to.RankFailedError), match=message):
        to.train(plan, drawn(8, 1), 1, evaluate_data=held_out)

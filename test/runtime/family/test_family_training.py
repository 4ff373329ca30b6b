"""Every plan of a family trains as one device does, from what they share."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from made_families import small_family, write
from safetensors import safe_open
from train_runs import difference, run_plan

from tensoropt.runtime.family.family import Family
from tensoropt.runtime.support.errors import UserError

STEPS, RATE = 3, 0.01


def losses(plan: Path, data: Path, **options: str) -> list[float]:
    return run_plan(plan, data, STEPS, RATE, threads=1, **options).losses


@pytest.mark.parametrize(
    ("name", "flags"),
    [("cnn", ("--with-leanest", "--micro-batches", "2")), ("gpt2", ("--optimizer", "momentum"))],
)
def test_plans_train_alike(small: Path, name: str, flags: tuple[str, ...]) -> None:
    """`cnn` has BatchNormalization, whose statistics are those of a micro-batch."""
    data, folder = small_family(small, name, "--devices", "2", *flags)
    family = Family.read(folder)
    family.check()
    initial = str(family.initial)
    first, *others = (losses(plan.path, data, resume=initial) for plan in family.plans)
    assert first[0] != first[-1]
    assert len(others) == len(family.plans) - 1 >= 1
    for found in others:
        assert difference(found, first) < 1e-4


def test_a_family_starts_as_a_plan_alone(model: Path, written: Path, tmp_path: Path) -> None:
    data, alone = tmp_path / "data.npz", tmp_path / "alone"
    rng = np.random.default_rng(1)
    shapes = {"x": (512, 64), "t": (512, 32)}
    np.savez(data, **{n: rng.standard_normal(s, dtype=np.float32) for n, s in shapes.items()})
    write(model, "--loss", "mse:y,t", "--recompute", "none", "--devices", "1", "-o", alone)
    initial = str(Family.read(written).initial)
    assert losses(written / "1", data, resume=initial) == losses(alone, data)


def test_what_plans_start_from_is_stored_once(written: Path) -> None:
    assert [p.name for p in written.rglob("*.safetensors")] == ["initial.safetensors"]
    with safe_open(written / "initial.safetensors", "np") as file:
        facts = file.metadata()
        assert {name: file.get_slice(name).get_shape() for name in file.keys()} == {  # noqa: SIM118
            "w1": [64, 128],
            "w2": [128, 32],
        }
    assert json.loads(facts["moments"]) is None
    assert json.loads(facts["progress"])["step"] == 0
    for name in ("1", "2", "2-lean"):
        document = json.loads((written / name / "plan.json").read_text())
        assert document["training"]["start"] == "checkpoint"


def test_a_plan_of_a_family_alone_has_no_weights(written: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        run_plan(written / "1", tmp_path / "data.npz", 1, RATE)
    assert str(error.value) == (
        f"{written / '1'}: has no weights of its own, as it is a plan of a family, "
        f"expected resume {written / 'initial.safetensors'} or a checkpoint"
    )

"""Training steps on real ranks with attention that is split along the sequence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs.gpt import Gpt
from train_runs import run_plan

from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.cost.device import description_text

_WORDS, _STEPS = 64, 10
_KEYS = "[R] [S(2)] [S(2)] -> [P(sum)] [R]"
_RING = "[S(2)] [S(2)] [S(2)] -> [S(2)] *"
_HEADS_AND_RING = "[S(1),S(2)] [S(1),S(2)] [S(1),S(2)] -> [S(1),S(2)] *"
_HEADS_AND_KEYS = "[S(1),R] [S(1),S(2)] [S(1),S(2)] -> [S(1),P(sum)] *"


class Model:
    """A GPT, its data, and plans of its training steps in ``folder``."""

    def __init__(self, folder: Path, tokens: int, batch: int, heads: int = 4) -> None:
        self.folder = folder
        Gpt(
            layers=2, width=32, heads=heads, vocabulary=_WORDS, sequence=tokens, batch=batch,
            dtype="float32",
        ).build("gpt").save(folder, seed=0)  # fmt: skip
        rng = np.random.default_rng(0)
        samples = {n: rng.integers(0, _WORDS, (8 * batch, tokens)) for n in ("ids", "labels")}
        np.savez(folder / "data.npz", **samples)

    def plan(self, mesh: str, *pins: str, device: str = "cpu") -> Path:
        """Return the fastest plan on a mesh."""
        plan = self.folder / f"plan{len(list(self.folder.iterdir()))}"
        given = ["--train", "--loss", "softmax-cross-entropy:scores,labels", "--recompute", "none"]
        pinned = [word for pin in pins for word in ("--pin", pin)]
        where = ["--device", device, "--mesh", mesh, "-o", str(plan)]
        assert main([str(self.folder / "gpt.onnx"), *given, *pinned, *where]) == 0
        return plan

    def losses(self, plan: Path) -> list[float]:
        return run_plan(plan, self.folder / "data.npz", _STEPS, 1e-2, threads=1).losses


def kinds(plan: Path) -> Counter[str]:
    graph = onnx.load(plan / "rank0.onnx", load_external_data=False).graph
    return Counter(node.op_type for node in graph.node)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, list[float]]:
    """Return a model, and its losses on one device."""
    model = Model(tmp_path_factory.mktemp("short"), 64, 2)
    return model, model.losses(model.plan("1"))


@pytest.mark.parametrize("mesh", ["2", "4"])
def test_keys_are_split(short: tuple[Model, list[float]], mesh: str) -> None:
    model, losses = short
    plan = model.plan(mesh, f"node:*.tensoropt.Attention={_KEYS}")
    assert kinds(plan)["Attention"] == kinds(plan)["AttentionGradient"] == 2
    assert kinds(plan)["AllReduce"] >= 4  # two of logarithms in each layer
    np.testing.assert_allclose(model.losses(plan), losses, rtol=1e-5)


@pytest.mark.parametrize("mesh", ["2", "4"])
def test_keys_travel_in_a_ring(short: tuple[Model, list[float]], mesh: str) -> None:
    model, losses = short
    plan, ranks = model.plan(mesh, f"node:*.tensoropt.Attention={_RING}"), int(mesh)
    attentions = 2 * (3 + 2 * (ranks - 1))  # in halves, in each layer
    assert kinds(plan)["Attention"] == kinds(plan)["AttentionGradient"] == attentions
    assert kinds(plan)["CollectivePermute"] > 2 * 2 * (ranks - 1)
    np.testing.assert_allclose(model.losses(plan), losses, rtol=1e-5)


@pytest.mark.parametrize("mesh", ["2", "4"])
def test_keys_travel_during_attention(short: tuple[Model, list[float]], mesh: str) -> None:
    model, losses = short
    device, ranks = model.folder / "beside.toml", int(mesh)
    device.write_text(f"{description_text('cpu')}\n[overlap]\nstart_s = 1e-7\nshare = 0.2\n")
    plan = model.plan(mesh, f"node:*.tensoropt.Attention={_RING}", device=str(device))
    sent = 2 * (2 + 6) * (ranks - 1)  # keys and values, in the backward pass with gradients' halves
    assert kinds(plan)["CollectivePermuteStart"] == kinds(plan)["CollectivePermuteWait"] == sent
    np.testing.assert_allclose(model.losses(plan), losses, rtol=1e-5)


@pytest.mark.parametrize("pin", [_HEADS_AND_RING, _HEADS_AND_KEYS])
def test_heads_are_split_too(short: tuple[Model, list[float]], pin: str) -> None:
    model, losses = short
    plan = model.plan("2x2", f"node:*.tensoropt.Attention={pin}")
    np.testing.assert_allclose(model.losses(plan), losses, rtol=1e-5)


def test_the_fastest_plan_of_a_long_text_exchanges_sequence_for_heads(tmp_path: Path) -> None:
    model = Model(tmp_path, 2048, 1)
    plan = model.plan("4")
    assert kinds(plan)["AllToAll"] >= 2
    assert kinds(plan)["Attention"] == 2
    np.testing.assert_allclose(model.losses(plan), model.losses(model.plan("1")), rtol=1e-5)


def test_the_fastest_plan_of_a_long_text_with_one_head_is_a_ring(tmp_path: Path) -> None:
    plan = Model(tmp_path, 8192, 1, heads=1).plan("4")
    assert kinds(plan)["Attention"] == kinds(plan)["AttentionGradient"] == 2 * (3 + 2 * 3)

"""Attention of steps for GPUs: its forms with a kernel, in bfloat16, next to PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx as onnx_package
import pytest
import torch
from graphs.gpt import Gpt
from graphs.llama import Llama
from torch_models.llama import TorchLlama
from torch_models.steps import loss_of
from torch_models.weights import load_weights
from training.on_cpus import RoundedStep
from training.steps import build, spec_of

from tensoropt.compiler.report.training import training_notes
from tensoropt.dialects import onnx
from tensoropt.dialects.build import element_type
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.ops import library_path

LOSS = "softmax-cross-entropy:scores,labels"
SIZES = Llama(
    layers=2, width=32, heads=4, groups=2, inner=48, vocabulary=64, sequence=16, batch=4,
    dtype="float32",
)  # fmt: skip
RATE, STEPS = 3e-3, 50


def gpt(folder: Path, **sizes: Any) -> Path:
    given = {"layers": 1, "width": 32, "heads": 4, "vocabulary": 32, "sequence": 16, "batch": 4}
    return Gpt(dtype="float32", **{**given, **sizes}).build("gpt").save(folder, seed=0)


def attentions(module: ir.Module) -> list[ir.Operation]:
    ops = (op.operation for op in onnx.function(module).regions[0].blocks[0])
    return [op for op in ops if op.name.removeprefix("onnx.") in onnx.ATTENTIONS]


def notes(path: Path, **options: Any) -> list[str]:
    spec = spec_of(LOSS, **{"precision": "bfloat16", **options})
    step = build(path, spec, fuses=True, architectures="90")
    return [*training_notes(build(path, spec), step, spec.precision, ())]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("sequence", [16, 144], ids=["short", "in blocks"])
def test_attention_is_fused_in_the_type_of_the_step(
    precision: str, sequence: int, tmp_path: Path
) -> None:
    path = gpt(tmp_path, sequence=sequence)
    step = build(path, spec_of(LOSS, precision=precision), fuses=True, architectures="90")
    forward, backward = attentions(step)
    narrow = ir.BF16Type if precision == "bfloat16" else ir.F16Type
    with step.context:
        kinds = [element_type(value) for value in forward.results]
        assert kinds == [narrow.get(), ir.F32Type.get()]
        read = [element_type(value) for value in backward.operands]
        assert read == [*[narrow.get()] * 5, ir.F32Type.get()]
    assert onnx.attribute(forward, "causal") == 1
    assert not [op for op in onnx.walk(onnx.function(step)) if "BlockedAttention" in op.name]


@pytest.mark.parametrize(
    ("sizes", "options", "reason"),
    [
        ({}, {"precision": "float32"}, "elements of type float32"),
        ({"heads": 8}, {}, "heads of 4 and 4, which are no multiples of 8 up to 256"),
        (
            {"heads": 8, "sequence": 72},
            {},
            "heads of 4 and 4, which are no multiples of 8 up to 256",
        ),
    ],
)
def test_other_forms_are_kept_with_a_note(
    sizes: dict[str, int], options: dict[str, str], reason: str, tmp_path: Path
) -> None:
    path = gpt(tmp_path, layers=2, **sizes)
    (note,) = (line for line in notes(path, **options) if "without a kernel" in line)
    assert f"has {reason}: 'layer0/attention/" in note
    assert "'layer1/attention/" in note
    spec = spec_of(LOSS, **{"precision": "bfloat16", **options})
    step = build(path, spec, fuses=True, architectures="90")
    assert not attentions(step)
    plain = str(build(path, spec)).split("module attributes", 1)[1].split("\n", 1)[1]
    assert str(step).split("module attributes", 1)[1].split("\n", 1)[1] == plain


def test_dropout_is_kept_with_a_note(tmp_path: Path) -> None:
    path, spec = gpt(tmp_path, attention_dropout=0.1), spec_of(LOSS, precision="bfloat16")
    assert not attentions(build(path, spec, fuses=True, architectures="90"))
    (note,) = (line for line in notes(path) if "without a kernel" in line)
    assert "has dropout of weights: 'layer0/attention/softmax'" in note


def test_all_architectures_need_the_form(tmp_path: Path) -> None:
    path, spec = gpt(tmp_path), spec_of(LOSS, precision="bfloat16")
    assert attentions(build(path, spec, fuses=True, architectures="80,90"))
    step = build(path, spec, fuses=True, architectures="70,90")
    assert not attentions(step)
    (note,) = (
        n for n in training_notes(build(path, spec), step, "bfloat16", ()) if "kernel of" in n
    )
    assert "a GPU of compute capability 7.0" in note


def test_no_note_if_all_is_fused(tmp_path: Path) -> None:
    assert not [note for note in notes(gpt(tmp_path)) if "scores" in note or "kernel of" in note]


def test_steps_in_bfloat16_learn_as_in_pytorch(tmp_path: Path) -> None:
    """The kernels of processors stand in for those of GPUs."""
    path = SIZES.build("llama").save(tmp_path, seed=0)
    model = onnx_package.load(path)
    spec = spec_of(LOSS, "adam", precision="bfloat16", freeze=("constant_*",))
    folder = tmp_path / "step"
    folder.mkdir()
    step = RoundedStep(
        model, spec, folder, library_path(), fuses=True, architectures="90"
    )  # fmt: skip
    assert len(attentions(step.module)) == 2 * SIZES.layers
    rng = np.random.default_rng(1)
    shape = (SIZES.batch, SIZES.sequence)
    ids = rng.integers(0, SIZES.vocabulary, shape)
    feeds = {"ids": ids, "labels": (3 * ids + 1) % SIZES.vocabulary}
    losses = [step.step(feeds, learning_rate=RATE, step=count)[0] for count in range(1, STEPS + 1)]
    module = load_weights(TorchLlama(SIZES), path)
    optimizer = torch.optim.Adam(module.parameters(), lr=RATE)
    expected = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(module, {name: torch.tensor(x) for name, x in feeds.items()})
        loss.backward()
        optimizer.step()
        expected.append(float(loss.detach()))
    assert expected[-1] < 0.1 * expected[0]
    np.testing.assert_allclose(losses, expected, rtol=0.05, atol=0.02)

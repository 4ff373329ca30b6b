"""Training of tied weights and learned positions, as both exporters of PyTorch write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tensoropt as to

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # of the exporters

MODEL = Path(__file__).parent.parent / "models/tied_decoder.onnx"
STEPS, SAMPLES, RATE = 8, 4, 0.05
TRAIN = to.Training(
    "softmax-cross-entropy:logits,labels", optimizer="SGD", momentum=0.9, recompute="none"
)


def exported(kind: str, folder: Path) -> tuple[Path, torch.nn.Module]:  # type: ignore[name-defined]
    """Return a model, and the module with its weights."""
    from exported_text import TOKENS, Decoder

    torch.manual_seed(0)
    module = Decoder().train()
    if kind == "dynamo":  # written with optimize=False, as onnxscript is not installed here
        stored = {
            t.name: numpy_helper.to_array(t).copy() for t in onnx.load(MODEL).graph.initializer
        }
        state = {name: torch.from_numpy(array) for name, array in stored.items()}
        module.load_state_dict({**state, "wte.weight": state["head.weight"]}, strict=False)
        return MODEL, module
    path, before = folder / "older.onnx", {n: t.clone() for n, t in module.state_dict().items()}
    torch.onnx.export(
        module,
        (torch.zeros(SAMPLES, TOKENS, dtype=torch.int64),),
        path,
        dynamo=False,
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.TRAINING,
        input_names=["ids"],
        output_names=["logits"],
    )
    model = onnx.load(path)
    for tensor in model.graph.initializer:  # the export has run the module once
        tensor.CopyFrom(numpy_helper.from_array(before[tensor.name].numpy(), tensor.name))
    onnx.save(model, path)
    module.load_state_dict(before)
    return path, module


@pytest.mark.parametrize("kind", ["dynamo", "older"])
def test_steps_equal_pytorch_and_load_into_the_module(kind: str, tmp_path: Path) -> None:
    from exported_text import TOKENS, VOCABULARY, Decoder

    path, module = exported(kind, tmp_path)
    ids, labels = torch.randint(0, VOCABULARY, (2, STEPS * SAMPLES, TOKENS))
    plan = to.load(path).frontier(2, epsilon=0.05, train=TRAIN).fastest.compile(tmp_path / "plan")
    data = {"ids": ids.tolist(), "labels": labels.numpy()}
    run = to.train(plan, data, STEPS, learning_rate=RATE, checkpoint=tmp_path / "saved")

    optimizer, losses = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9), []
    for start in range(0, len(ids), SAMPLES):
        optimizer.zero_grad()
        scores = module(ids[start : start + SAMPLES]).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(scores, labels[start : start + SAMPLES].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(run.losses, losses, rtol=2e-5)

    again = Decoder()
    state = to.state_dict(tmp_path / "saved", path, again)
    again.load_state_dict(state, strict=True)
    assert again.head.weight is again.wte.weight
    for name, expected in module.state_dict().items():
        if name != "block.batch_norm.num_batches_tracked":  # no part of the ONNX model
            # ONNX divides the running variance by n, PyTorch by n - 1; n is 64 here.
            rtol = 1 / 63 if name.endswith("running_var") else 1e-3
            np.testing.assert_allclose(state[name], expected, rtol=rtol, atol=2e-5, err_msg=name)


def test_notes_name_tied_weights_and_learned_positions(tmp_path: Path) -> None:
    notes = "\n".join(to.load(MODEL).frontier(1, epsilon=0.05, train=TRAIN).notes)
    assert "tied in the PyTorch model, and trained as one: 'wte.weight=head.weight'" in notes
    assert "left out" not in notes
    path, _ = exported("older", tmp_path)
    notes = "\n".join(to.load(path).frontier(1, epsilon=0.05, train=TRAIN).notes)
    assert "though they are only added, multiplied or compared" in notes
    assert "'wpe'; --freeze 'wpe' if they are buffers" in notes


def test_a_parameter_that_the_model_lacks_is_named(tmp_path: Path) -> None:
    from exported_text import Decoder

    checkpoint = _checkpoint(tmp_path)
    module = Decoder()
    module.register_parameter("scale", torch.nn.Parameter(torch.ones(1)))
    with pytest.raises(
        to.UserError, match="expected a weight 'scale', as the module has, got none"
    ):
        to.state_dict(checkpoint, MODEL, module)
    module = Decoder()
    module.wpe = torch.nn.Parameter(torch.ones(2, 2))
    with pytest.raises(to.UserError, match="'wpe': expected shape 2x2 of the module, got: 1x8x16"):
        to.state_dict(checkpoint, MODEL, module)
    with pytest.raises(to.UserError, match="expected an ONNX model"):
        to.state_dict(checkpoint, checkpoint, module)


def _checkpoint(folder: Path) -> Path:
    """Write a checkpoint of the stored model, before any step."""
    plan = to.load(MODEL).frontier(1, epsilon=0.05, train=TRAIN).fastest.compile(folder / "plan")
    data = {"ids": np.zeros((4, 8), np.int64), "labels": np.zeros((4, 8), np.int64)}
    found = to.train(plan, data, 1, learning_rate=0.0, checkpoint=folder / "saved").checkpoint
    assert found is not None
    return found

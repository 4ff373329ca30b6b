"""Tiny Mixtral and Qwen-MoE models of transformers, exported and trained: losses against PyTorch's.

    PYTHONPATH=FOLDER python bench/accuracy/trained_experts.py

Needs transformers and onnxscript, for instance in a FOLDER of `pip install --target`. A model has
two layers and random weights. PyTorch trains the module itself, and ranks of one thread train its
export by plans that send tokens, that share them, and that split features, on the same batches with
Adam. Prints the largest relative difference of a loss; exit status 1 if one is above 1e-4.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
import transformers
from megatron.exports import created
from torch_models.steps import train
from train_runs import difference, run_plan

import tensoropt as to
from tensoropt.compiler.pipeline import driver
from tensoropt.dialects import onnx
from tensoropt.runtime.support.flags import Parser, run_command

_WIDTH, _VOCABULARY, _SEQUENCE, _BATCH, _BATCHES = 64, 128, 16, 4, 4
_RATE, _TOLERANCE = 1e-3, 1e-4

_STANDARD: Mapping[str, Any] = {
    "vocab_size": _VOCABULARY,
    "hidden_size": _WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 64,
    "use_cache": False,
}
_QWEN = {**_STANDARD, "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24}
MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mixtral": ("Mixtral", {**_STANDARD, "num_local_experts": 8, "sliding_window": None}),
    "qwen2-moe": ("Qwen2Moe", {**_QWEN, "shared_expert_intermediate_size": 48}),
    "qwen3-moe": ("Qwen3Moe", {**_QWEN, "head_dim": 16, "norm_topk_prob": True}),
}
"""Class prefix and sizes, by name."""

FORMS: Mapping[str, str] = {
    "sent": "[S(0)] [S(0)] [S(0)] * [S(0)] * -> [S(0)]",
    "shared": "[R] [R] [S(0)] * [S(0)] * -> [P(sum)]",
    "features": "[R] [R] [S(1)] * [S(2)] * -> [P(sum)]",
}
"""Layouts of the mixtures: of tokens, scores, both weights and the result."""


_CONSTANT = ["where*", "unsqueeze*"]
"""The mask and the angles of positions, which exports store as weights."""


class _Scores(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.inner(input_ids=ids, use_cache=False).logits
        return scores


def built(name: str) -> _Scores:
    """Return a model with random weights."""
    prefix, sizes = MODELS[name]
    config = getattr(transformers, f"{prefix}Config")(**sizes)
    return _Scores(created(f"{prefix}ForCausalLM", config)).eval()


def exported(model: _Scores, path: Path) -> Path:
    """Export ``model`` for a batch of known sizes."""
    ids = torch.zeros(_BATCH, _SEQUENCE, dtype=torch.int64)
    torch.onnx.export(
        model, (ids,), path, dynamo=True, input_names=["ids"], output_names=["scores"]
    )
    return path


def samples() -> dict[str, np.ndarray[Any, Any]]:
    """Return random tokens, and the next ones as labels."""
    shape = _BATCHES * _BATCH, _SEQUENCE + 1
    tokens = np.random.default_rng(0).integers(0, _VOCABULARY, shape)
    return {"ids": tokens[:, :-1], "labels": tokens[:, 1:]}


def mixtures(path: Path) -> list[str]:
    """Return the names of the mixtures that the exported experts become."""
    module = driver.load(path, {}, training=True)
    driver.run_phase(module, "prepare", training=True)
    ops = onnx.walk(onnx.function(module))
    return [onnx.node_name(op) or "" for op in ops if op.name == "onnx.com.microsoft.MoE"]


def compare(name: str, steps: int, folder: Path, say: Callable[[str], None]) -> bool:
    """Train a model by each plan; return whether all losses are PyTorch's."""
    model, arrays = built(name), samples()
    path, data = exported(model, folder / "model.onnx"), folder / "data.npz"
    np.savez(data, **arrays)  # type: ignore[arg-type]
    wanted = train(model, arrays, _BATCH, steps, "adam", _RATE)
    step = to.Training(
        "softmax-cross-entropy:scores,labels", "adam", recompute="none", freeze=_CONSTANT
    )
    passed, names = True, mixtures(path)
    for ranks, form in ((1, ""), *((n, form) for n in (2, 4) for form in FORMS)):
        pins = tuple(f"node:{own}={FORMS[form]}" for own in names) if form else ()
        how = {"mesh": str(ranks), "train": step, "epsilon": 1.0, "pins": pins}
        plan = folder / f"{form}{ranks}"
        to.load(path).frontier(ranks, **how).fastest.compile(plan)
        error = difference(run_plan(plan, data, steps, _RATE, threads=1).losses, wanted)
        passed &= error < _TOLERANCE
        losses = f"{wanted[0]:.3f} to {wanted[-1]:.3f}"
        say(f"{name:10s} {ranks} {form or 'whole':8s} {steps} steps, {losses}: {error:.1e}")
    return passed


def main() -> int:
    """Print a line per plan."""
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="default all")
    parser.add_argument("--steps", type=int, default=24)
    given = parser.parse()
    torch.set_num_threads(1)
    passed = True
    for name in given.models or MODELS:
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            passed &= compare(name, given.steps, Path(folder), print)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(run_command(main))

"""Models and plans of the check: ResNet-50, a GPT-2 and a LLaMA, in three sizes.

``full`` is for GPUs, ``half`` for measurements on CPUs, ``tiny`` for tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphs.catalog import Model
from graphs.gpt import Gpt
from graphs.llama import Llama
from graphs.served import Served
from graphs.trained import LOSS, TRAINED
from zoo import provide

from gpu.commands import tensoropt_opt

__all__ = ["MICRO_BATCHES", "SIZES", "Zoo", "write_plan", "write_training_plan"]

_BRIEFLY = ("--search-time", "2")  # the check needs different plans, not the best ones
_TWO_STAGES = ("--stages", "2")
MICRO_BATCHES = 4
"""The micro-batches of a training step."""
# GPT-2 (Radford et al., 2019), the smallest; a LLaMA with about as many weights.
_TEXT = {"sequence": 128, "batch": 4, "dtype": "float32"}
_GPT2 = Gpt(layers=12, width=768, heads=12, vocabulary=50257, **_TEXT)  # type: ignore[arg-type]
_LLAMA = Llama(
    layers=6,
    width=1024,
    heads=16,
    groups=4,
    inner=2816,
    vocabulary=32000,
    **_TEXT,  # type: ignore[arg-type]
)
# Sizes that two cores compute in some milliseconds.
_SHORT = {"layers": 6, "width": 256, "heads": 8, "vocabulary": 2048, "sequence": 64, "batch": 1}
_HALF = {
    "resnet50": None,
    "gpt2": Gpt(**_SHORT, dtype="float32"),  # type: ignore[arg-type]
    "llama": Llama(**_SHORT, groups=4, inner=704, dtype="float32"),  # type: ignore[arg-type]
}
SIZES: Mapping[str, Mapping[str, Model | None]] = {
    "full": {"resnet50": None, "gpt2": _GPT2, "llama": _LLAMA},
    "half": _HALF,
    "tiny": {name: TRAINED[name] for name in ("cnn", "gpt2", "llama")},
}
"""By size and name; a None comes from `zoo`."""
_SMALL = Served(
    layers=2, width=64, heads=4, groups=2, size=16, inner=96, vocabulary=256, positions=64
)
_SERVED: Mapping[str, Served] = {
    "full": Served(
        layers=8,
        width=1024,
        heads=16,
        groups=4,
        size=64,
        inner=2816,
        vocabulary=32000,
        positions=64,
    ),
    "half": _SMALL,
    "tiny": _SMALL,
}


@dataclass(frozen=True)
class Zoo:
    """Models of one of :data:`SIZES`, written to ``folder`` on first use."""

    size: str
    folder: Path

    @property
    def names(self) -> list[str]:
        """Names of the models, the convolutional network first."""
        return list(SIZES[self.size])

    def decoder(self) -> Path:
        """Return the file of a decoder in float16, with caches."""
        folder = self.folder / "decoder"
        folder.mkdir(exist_ok=True)
        made: Path = _SERVED[self.size].build("decoder").save(folder, seed=0)
        return made

    def path(self, name: str, dtype: str = "float32") -> Path:
        """Return a model's file; the convolutional network is float32 only."""
        path = self.folder / dtype / f"{name}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            return path
        model: Any = SIZES[self.size][name]
        if model is None:
            return provide(name, path.parent)
        typed = model if dtype == "float32" else replace(model, dtype=dtype)
        made: Path = typed.build(name).save(path.parent, seed=0)
        return made


def write_plan(model: Path, ranks: int, way: str, device: str, folder: Path) -> Path:
    """Return the ``fastest``, ``leanest``, ``expert`` or ``staged`` plan in ``folder``.

    A staged plan has two stages. A plan is written once.
    """
    folder.mkdir(exist_ok=True)
    plan = folder / f"{model.parent.name}-{model.stem}-{ranks}-{way}"
    if plan.is_dir():
        return plan
    flags = {
        "fastest": ["--pick", "fastest", *_BRIEFLY],
        "leanest": ["--pick", "leanest", *_BRIEFLY],
        "expert": ["--search", "expert"],
        "staged": ["--search", "expert", "--objective", "throughput", *_TWO_STAGES],
    }[way]
    tensoropt_opt(model, "--devices", str(ranks), "--device", device, *flags, "-o", plan)
    return plan


def write_training_plan(
    model: Path, ranks: int, way: str, precision: str, device: str, folder: Path
) -> Path:
    """Write the leanest plan that trains ``model`` with AdamW without recomputation.

    A ``staged`` plan has two stages, and its schedule has tasks for the gradients of weights.
    Gradients are summed over :data:`MICRO_BATCHES`.
    """
    plan = folder / f"train-{model.stem}-{ranks}-{way}-{precision}"
    how = ["--loss", LOSS, "--precision", precision, "--recompute", "none"]
    how += ["--micro-batches", str(MICRO_BATCHES)]
    how += {"leanest": ["--stages", "1"], "staged": [*_TWO_STAGES, "--schedule", "zb-h1"]}[way]
    flags = ["--devices", str(ranks), "--device", device, "--pick", "leanest", *_BRIEFLY]
    tensoropt_opt(model, "--train", *how, *flags, "-o", plan)
    return plan

"""Agreement of plans on several ranks with one rank: outputs, and losses of training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from speed.models import SPEED_TRAINED
from train_runs import difference
from training_data import batch_size, draw

from gpu.commands import tensoropt_run
from gpu.failure import RunError
from gpu.models import MICRO_BATCHES, write_plan, write_training_plan
from gpu.setting import Part, Setting, table

__all__ = ["inference", "training"]

_STEPS = 10
# Of losses: the effect of rounding on sums in another order, over ten steps. On GPUs, float32
# products use TF32, which rounds operands to float16's 10 bits.
_TOLERANCES = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 5e-2}
_LIMIT = ["--timeout", "120"]

Row = list[object]


def inference(setting: Setting) -> Part:
    """Compare plans of every model on every number of ranks with the model on one device."""
    rows, failures = list[Row](), list[str]()
    for name, dtype, ranks in _cases(setting):
        try:
            found = _compared(setting, name, dtype, ranks)
        except RunError as error:
            found = [[name, dtype, ranks, "-", "-", str(error)]]
        for row in found:
            setting.say(_line(row))
        rows += found
        failures += [_line(row) for row in found if row[-1] != "agrees"]
    head = ["model", "type", "ranks", "plan", "largest difference", ""]
    return Part(table(head, rows), failures)


def _line(row: Row) -> str:
    return ", ".join(map(str, row))


def _cases(setting: Setting) -> Iterator[tuple[str, str, int]]:
    """Yield models, types and numbers of ranks: all in float32, the text models in all types."""
    for ranks in (1, *setting.ranks):
        yield from ((name, "float32", ranks) for name in setting.zoo.names)
    for dtype in setting.precisions[1:]:
        yield from ((name, dtype, setting.ranks[0]) for name in setting.zoo.names[1:])


def _compared(setting: Setting, name: str, dtype: str, ranks: int) -> list[Row]:
    model = setting.zoo.path(name, dtype)
    ways = ["leanest"] if ranks == 1 else ["leanest", "expert", "staged"]
    plans = [write_plan(model, ranks, way, setting.device, setting.folder) for way in ways]
    report = tensoropt_run(*plans, "--check", model, *setting.where, *_LIMIT)
    held = report.get("plans", [report])
    return [
        [name, dtype, ranks, way, *_verdict(result)] for way, result in zip(ways, held, strict=True)
    ]


def _verdict(result: dict[str, Any]) -> tuple[str, str]:
    if result["error"] is not None:
        return "-", str(result["error"])
    differences = [output["absolute"] for output in result["outputs"]]
    largest = "-" if None in differences else f"{max(differences):.2g}"
    return largest, "agrees" if result["passed"] else "differs"


def training(setting: Setting) -> Part:
    """Compare the losses of ten steps on every number of ranks with the losses on one rank."""
    model = SPEED_TRAINED["gpt2-5M"] if setting.zoo.size == "full" else None
    path = _trained_model(setting, model)
    data = setting.folder / "training.npz"
    np.savez(data, **draw(path, MICRO_BATCHES * batch_size(path)))
    rows, failures = list[Row](), list[str]()
    for precision in setting.precisions:
        try:
            found = _trained(setting, path, data, precision)
        except RunError as error:
            found = [[precision, *"-----", str(error)]]
        for row in found:
            setting.say(f"training in {_line(row)}")
        failures += [f"training in {_line(row)}" for row in found if row[-1] != "agrees"]
        rows += found
    losses = ["first loss", f"loss of step {_STEPS}", "largest difference", ""]
    return Part(table(["precision", "ranks", "plan", *losses], rows), failures)


def _trained_model(setting: Setting, model: Any) -> Path:
    if model is None:
        return setting.zoo.path("gpt2")
    folder = setting.folder / "trained"
    folder.mkdir(exist_ok=True)
    made: Path = model.build("gpt2").save(folder, seed=0)
    return made


def _trained(setting: Setting, path: Path, data: Path, precision: str) -> list[Row]:
    cases = [(n, "leanest") for n in (1, *setting.ranks)]
    if precision == "float32":
        cases += [(n, "staged") for n in setting.ranks]
    curves = {case: _losses(setting, path, data, precision, *case) for case in cases}
    rounded = "float16" if precision == "float32" and not setting.host else precision
    alone = curves[cases[0]]
    return [
        [
            precision,
            *case,
            f"{curve[0]:.6g}",
            f"{curve[-1]:.6g}",
            *_judged(curve, alone, _TOLERANCES[rounded]),
        ]
        for case, curve in curves.items()
    ]


def _judged(curve: list[float], alone: list[float], tolerance: float) -> tuple[str, str]:
    found = difference(curve, alone)
    return f"{found:.2g}", "agrees" if found <= tolerance else "differs"


def _losses(
    setting: Setting, path: Path, data: Path, precision: str, ranks: int, way: str
) -> list[float]:
    plan = write_training_plan(path, ranks, way, precision, setting.device, setting.folder)
    log = plan.with_suffix(".jsonl")
    log.unlink(missing_ok=True)
    flags = ["--data", data, "--steps", str(_STEPS), "--learning-rate", "1e-3", "--log", log]
    tensoropt_run(plan, "--train", *flags, *setting.where, *_LIMIT)
    return [json.loads(line)["loss"] for line in log.read_text(encoding="utf-8").splitlines()]

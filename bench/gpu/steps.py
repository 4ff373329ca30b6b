"""Times and memory of plans: predicted and measured, with and without CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpu.commands import tensoropt_profile, tensoropt_run
from gpu.failure import RunError
from gpu.models import write_plan
from gpu.setting import Part, Setting, table

__all__ = ["cuda_graphs", "prediction"]

_RUNS = ["--runs", "30", "--timeout", "120"]

Row = list[object]


def prediction(setting: Setting) -> Part:
    """Measure this machine, plan for the measured description, and run these plans.

    The number of ranks is at most the number of GPUs: ranks that share one run slower.
    """
    setting.say("measuring this machine")
    ranks = setting.ranks[0] if setting.host else min(setting.ranks[0], setting.gpus)
    device = setting.folder / "measured.toml"
    tensoropt_profile(
        *_measures(setting), "--provider", setting.provider, "--ranks", str(ranks), "-o", device
    )
    rows, failures = list[Row](), list[str]()
    for name, count, way in _plans(setting, ranks):
        setting.say(f"predicted and measured: {name} on {count} ranks")
        try:
            rows.append([name, count, way, *_measured(setting, name, count, way, device)])
        except RunError as error:
            failures.append(f"{name}, {count} ranks, {way}: {error}")
    head = [
        "model",
        "ranks",
        "plan",
        "predicted",
        "measured",
        "ratio",
        "memory predicted",
        "measured",
    ]
    return Part(table(head, rows), failures)


def _measures(setting: Setting) -> list[Path | str]:
    """Return the models to measure, and a budget; tiny sizes measure no models."""
    if setting.zoo.size == "tiny":
        return ["--quick", "--budget", "3"]
    return [*map(setting.zoo.path, setting.zoo.names), "--budget", "30"]


def _plans(setting: Setting, ranks: int) -> Iterator[tuple[str, int, str]]:
    """Yield models, numbers of ranks, and plans; plans of one rank have no collectives at all."""
    for name in setting.zoo.names:
        yield name, 1, "fastest"
        if ranks > 1:
            yield name, ranks, "leanest"


def _measured(setting: Setting, name: str, count: int, way: str, device: Path) -> Row:
    model = setting.zoo.path(name)
    plan = write_plan(model, count, way, str(device), setting.folder / "measured")
    found = tensoropt_run(plan, *setting.where, *_RUNS)
    predicted, measured = found["predicted_time_s"], found["step_time_s"]["median"]
    times = [_milliseconds(predicted), _milliseconds(measured), f"{predicted / measured:.2f}"]
    # The measured description predicts whole processes: on a GPU, with CUDA's context.
    memory = found["used_bytes"] or found["peak_bytes"]
    return [*times, _mebibytes(found["predicted_bytes"]), _mebibytes(memory)]


def cuda_graphs(setting: Setting) -> Part:
    """Time plans with steps captured as CUDA graphs by ONNX Runtime, and without."""
    rows, failures = list[Row](), list[str]()
    for name, count, way in _plans(setting, setting.ranks[0]):
        setting.say(f"CUDA graphs: {name} on {count} ranks")
        try:
            rows.append([name, count, way, *_both(setting, name, count, way)])
        except RunError as error:
            failures.append(f"{name}, {count} ranks, {way}: {error}")
    head = ["model", "ranks", "plan", "without", "with", "ratio", "CUDA graphs", "nodes on the CPU"]
    return Part(table(head, rows), failures)


def _both(setting: Setting, name: str, count: int, way: str) -> Row:
    model = setting.zoo.path(name)
    plan = write_plan(model, count, way, setting.device, setting.folder)
    graphs = ["--cuda-graphs"] if setting.provider == "cuda" else []
    plain, captured = (_run(setting, plan, flags) for flags in ([], graphs))
    without, within = (found["step_time_s"]["median"] for found in (plain, captured))
    times = [_milliseconds(without), _milliseconds(within), f"{within / without:.2f}"]
    reason = (captured["cuda_graphs"] or "-").replace(f"{plan}/", "")
    return [*times, reason, _text(plain["nodes_on_cpu"])]


def _run(setting: Setting, plan: Path, flags: Sequence[str]) -> Any:
    return tensoropt_run(plan, *setting.where, *flags, *_RUNS)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f} ms"


def _mebibytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.1f} MiB"


def _text(value: object) -> str:
    return "-" if value is None else str(value)

"""The result of training as text or JSON."""

from __future__ import annotations

import json

from tensoropt.runtime.cli.report import device_lines, predicted_time
from tensoropt.runtime.support.tables import columns, milliseconds, size_text
from tensoropt.runtime.training.job import TrainResult

__all__ = ["train_json", "train_text"]


def train_text(result: TrainResult) -> str:
    """Return the losses, the step time, and measured and predicted memory."""
    lines = [*_loss_lines(result), *_memory_lines(result)]
    files = (("checkpoint", result.checkpoint), ("exported", result.export))
    lines += device_lines(result)
    lines += [f"{what}: {path}" for what, path in files if path is not None]
    return "".join(f"{line}\n" for line in lines)


def _loss_lines(result: TrainResult) -> list[str]:
    if result.first_loss is None or result.last_loss is None:
        return []
    skipped = f", {result.skipped} skipped" if result.skipped else ""
    first, last = f"{result.first_loss:.6g}", f"{result.last_loss:.6g}"
    lines = [f"step {result.step}: loss {first} -> {last} in {result.steps} steps{skipped}"]
    if result.evaluation_loss is not None:
        lines.append(f"evaluation loss: {result.evaluation_loss:.6g}")
    if result.step_time_s:
        per_s = result.samples / result.steps / result.step_time_s
        time_text = milliseconds(result.step_time_s)
        predicted = predicted_time(result)
        lines.append(f"step time: median {time_text}{predicted}, {per_s:.4g} samples per second")
    return lines


def _memory_lines(result: TrainResult) -> list[str]:
    if not result.held_bytes:
        return []
    rows = [["memory per device", "held", "predicted"]]
    for kind, size in result.held_bytes.items():
        predicted = result.predicted_bytes.get(kind)
        rows.append([kind.removesuffix("_bytes"), size_text(size), size_text(predicted)])
    static = sum(result.predicted_bytes.values()) if result.predicted_bytes else None
    rows.append(["static", size_text(sum(result.held_bytes.values())), size_text(static)])
    rows.append(["peak", size_text(result.peak_bytes), size_text(result.predicted_peak_bytes)])
    return columns(rows)


def train_json(result: TrainResult) -> str:
    """Return one JSON object; see `TrainResult`."""
    return json.dumps(result.facts(), indent=2, allow_nan=False) + "\n"

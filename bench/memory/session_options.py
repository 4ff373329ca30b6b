"""Effect of ONNX Runtime's session options on the memory and time of a training step.

    python bench/memory/session_options.py

Runs a transformer, with and without recomputation, and a CNN, on one rank. Each row is a process:
the peak of resident memory that training added, the predicted peak, and the processor time of a
step, the median of seven after the first.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
from graphs.catalog import Model
from graphs.gpt import Gpt
from graphs.residual import Residual
from graphs.trained import LOSS
from training_data import draw

__all__ = ["OPTIONS"]

_STEPS = 8
_MIB = 1 << 20
_GPT = Gpt(layers=12, width=192, heads=6, vocabulary=512, sequence=64, batch=4, dtype="float32")
_CNN = Residual(batch=16, image=64, blocks=3, width=16, pooled=True)

_CASES: tuple[tuple[str, Model, str], ...] = (
    ("gpt", _GPT, "none"),
    ("gpt", _GPT, "light"),
    ("gpt", _GPT, "blocks"),
    ("cnn", _CNN, "none"),
)


def _as_they_are(options: Any) -> None:
    pass


def _no_pattern(options: Any) -> None:
    options.enable_mem_pattern = False


def _in_order(options: Any) -> None:
    import onnxruntime

    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED


def _both(options: Any) -> None:
    _no_pattern(options)
    _in_order(options)


def _no_arena(options: Any) -> None:
    _both(options)
    options.enable_cpu_mem_arena = False


def _one_arena(options: Any) -> None:
    """Let the sessions of both graphs share an arena that grows by the requested size."""
    import onnxruntime as ort

    _both(options)
    kind, where = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
    place = ort.OrtMemoryInfo("Cpu", kind, 0, where)
    with suppress(Exception):  # the second session finds it registered
        ort.create_and_register_allocator(place, ort.OrtArenaCfg({"arena_extend_strategy": 1}))
    options.add_session_config_entry("session.use_env_allocators", "1")


def _basic(options: Any) -> None:
    import onnxruntime

    _both(options)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC


OPTIONS: Mapping[str, Callable[[Any], None]] = {
    "default": _as_they_are,
    "no pattern": _no_pattern,
    "file order": _in_order,
    "both": _both,
    "both, no arena": _no_arena,
    "both, one arena": _one_arena,
    "both, basic": _basic,
}


def measure(option: str, plan: str, data: str) -> tuple[int, int, float]:
    """Return resident and predicted peak in bytes, and the processor time of a step in seconds."""
    from mpi4py import MPI

    from tensoropt.runtime.device.provider import CpuProvider
    from tensoropt.runtime.launch.link import LauncherLink
    from tensoropt.runtime.session import session
    from tensoropt.runtime.training.job import TrainJob
    from tensoropt.runtime.training.trainer import StepFacts, Trainer
    from tensoropt.runtime.training.work import run_training

    session.run_in_file_order = OPTIONS[option]
    CpuProvider.keep_low = lambda *_: None  # type: ignore[method-assign]
    times, step = [], Trainer.step

    def timed(trainer: Trainer, *, stop: bool) -> StepFacts:
        start = time.process_time()
        facts = step(trainer, stop=stop)
        times.append(time.process_time() - start)
        return facts

    Trainer.step = timed  # type: ignore[method-assign]
    result = run_training(
        TrainJob(plan, steps=_STEPS, data=data, threads=1), MPI.COMM_WORLD, LauncherLink()
    )
    assert result.peak_bytes is not None and result.predicted_peak_bytes is not None
    return result.peak_bytes, result.predicted_peak_bytes, statistics.median(times[1:])


def _compiled(name: str, model: Model, recompute: str, folder: Path) -> tuple[str, str]:
    """Return a plan for one device, and samples for it."""
    from tensoropt.compiler.cli.opt import main as compile_

    path, data, plan = (
        model.build(name).save(folder, seed=0),
        folder / f"{name}.npz",
        folder / "plan",
    )
    np.savez(data, **draw(path, 64))
    flags = ["--train", "--loss", LOSS, "--devices", "1", "--recompute", recompute]
    assert compile_([str(path), *flags, "-o", str(plan)]) == 0
    return str(plan), str(data)


def main() -> None:
    """Print a row per case and option."""
    if len(sys.argv) > 1:
        print(*measure(*sys.argv[1:]))
        return
    line = "{:5} {:10} {:15} {:>10} {:>10} {:>10}"
    print(line.format("model", "recompute", "options", "peak MiB", "predicted", "step ms"))
    for name, model, recompute in _CASES:
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            plan, data = _compiled(name, model, recompute, Path(folder))
            for option in OPTIONS:
                command = [sys.executable, __file__, option, plan, data]
                peak, predicted, time_s = map(float, subprocess.check_output(command).split())
                sizes = (f"{peak / _MIB:.1f}", f"{predicted / _MIB:.1f}")
                print(
                    line.format(name, recompute, option, *sizes, f"{time_s * 1e3:.0f}"), flush=True
                )


if __name__ == "__main__":
    main()

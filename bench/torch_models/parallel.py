"""Training steps of a model in PyTorch's DistributedDataParallel, on processes of this machine."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from graphs.catalog import Model
from torch import distributed
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel

from torch_models.catalog import torch_model
from torch_models.steps import OPTIMIZERS, loss_of

__all__ = ["time_steps"]


def time_steps(
    model: Model, path: Path, data: Path, ranks: int, steps: int, optimizer: str
) -> list[float]:
    """Return the seconds of each step on rank 0, with gloo and one thread per rank.

    Every rank takes its part of the first batch of ``data``, in every step. Normalisations take the
    statistics of a rank's own part.
    """
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        result = Path(folder) / "seconds.json"
        spawn(_rank, (ranks, model, path, data, steps, optimizer, result), nprocs=ranks)
        seconds: list[float] = json.loads(result.read_text(encoding="utf-8"))
    return seconds


def _rank(
    rank: int,
    ranks: int,
    model: Any,
    path: Path,
    data: Path,
    steps: int,
    optimizer: str,
    result: Path,
) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{result.parent / 'meeting'}"
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    batch = _part(data, model.batch, rank, ranks)
    seconds = _timed_steps(torch_model(model, path).train(), batch, steps, optimizer)
    if rank == 0:
        result.write_text(json.dumps(seconds), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


def _part(data: Path, batch: int, rank: int, ranks: int) -> dict[str, torch.Tensor]:
    size = batch // ranks
    with np.load(data) as arrays:
        held = {name: arrays[name][rank * size : (rank + 1) * size] for name in arrays}
    return {name: torch.from_numpy(array) for name, array in held.items()}


def _timed_steps(
    module: torch.nn.Module, batch: dict[str, torch.Tensor], steps: int, optimizer: str
) -> list[float]:
    # Gone at the end of this function, before the process group is.
    parallel = DistributedDataParallel(module)
    given, seconds = OPTIMIZERS[optimizer](parallel.parameters(), lr=1e-4), []
    for _ in range(steps):
        started = time.perf_counter()
        loss = loss_of(parallel, batch)
        given.zero_grad()
        loss.backward()
        given.step()
        loss.item()
        seconds.append(time.perf_counter() - started)
    return seconds

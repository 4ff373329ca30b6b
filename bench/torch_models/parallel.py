"""Contenders that train a model in PyTorch on processes of this machine: as `turns.Way`.

They use AdamW, gloo, and one thread per rank. Every rank takes its part of the first batch of the
data in every step, or the whole batch if tensors are split. Batch normalisations use the statistics
of a rank's own part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from graphs.catalog import Model
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleOutput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from turns import Gate, Place

from torch_models.catalog import torch_model
from torch_models.steps import loss_of

__all__ = ["data_parallel", "fully_sharded", "tensor_parallel", "train_alone"]

Batch = Mapping[str, torch.Tensor]

_BLOCK = re.compile(r"(layer|block)\d+$")
"""Names of the modules of blocks, which gather their parameters as a unit."""


def train_alone(
    place: Place, gate: Gate, model: Model, path: Path, data: Path, rate: float, parts: int = 1
) -> list[float]:
    """Train in one process on ``parts`` parts of the batch in sequence, as ranks that split it."""
    torch.set_num_threads(1)
    module = torch_model(model, path).train()
    batches = [_part(data, number, parts) for number in range(parts)]
    given, losses = _optimizer(module, rate), []
    while gate():
        given.zero_grad()
        found = [loss_of(module, batch) / parts for batch in batches]
        for loss in found:
            loss.backward()
        given.step()
        losses.append(sum(loss.item() for loss in found))
    return losses


def data_parallel(
    place: Place, gate: Gate, model: Model, path: Path, data: Path, rate: float
) -> list[float]:
    """Train with DistributedDataParallel. Return the losses of the rank's own part."""

    def split(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        return DistributedDataParallel(module, gradient_as_bucket_view=True)

    batch = _part(data, place.rank, place.ranks)
    return _trained(place, gate, split, torch_model(model, path), batch, rate)


def fully_sharded(
    place: Place, gate: Gate, model: Model, path: Path, data: Path, rate: float
) -> list[float]:
    """Train with FSDP2, which gathers the blocks in sequence. Return the losses of the part."""

    def split(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        for name, part in module.named_modules():
            if _BLOCK.search(name):
                fully_shard(part, mesh=mesh)
        return fully_shard(module, mesh=mesh)

    batch = _part(data, place.rank, place.ranks)
    return _trained(place, gate, split, torch_model(model, path), batch, rate)


def tensor_parallel(
    place: Place, gate: Gate, model: Model, path: Path, data: Path, rate: float
) -> list[float]:
    """Train a transformer split as in Megatron-LM, by DTensors. Return the losses."""

    def split(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        return parallelize_module(module, mesh, _styles(module))

    given = torch_model(model, path)
    return _trained(place, gate, split, given, _part(data, 0, 1), rate, loss_parallel)


def _styles(module: nn.Module) -> dict[str, ParallelStyle]:
    """Return the splits of modules: heads, inner layers, and the vocabulary of the last product."""
    styles: dict[str, ParallelStyle] = {}
    for name, _ in module.named_modules():
        *_, part, last = ["", "", *name.split(".")]
        if last in ("qkv", "q", "k", "v", "up", "gate"):
            styles[name] = ColwiseParallel()
        elif last == "down" or (part, last) == ("attention", "out"):
            styles[name] = RowwiseParallel()
        elif name == "out":
            styles[name] = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    if hasattr(module, "tied"):  # the scores are products with the rows of the embedding
        styles["tokens"] = RowwiseParallel(input_layouts=Replicate())
        whole = {"output_layouts": Replicate(), "desired_output_layouts": Replicate()}
        styles[module.tied] = PrepareModuleOutput(**whole, use_local_output=False)
    return styles


def _trained(
    place: Place,
    gate: Gate,
    split: Callable[[nn.Module, DeviceMesh], nn.Module],
    module: nn.Module,
    batch: Batch,
    rate: float,
    losing: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[float]:
    torch.set_num_threads(1)
    place.announce()
    distributed.init_process_group("gloo")
    losses = _stepped(gate, split(module.train(), _mesh(place)), batch, rate, losing)
    distributed.barrier()
    distributed.destroy_process_group()
    return losses


def _mesh(place: Place) -> DeviceMesh:
    return init_device_mesh("cpu", (place.ranks,))


def _stepped(
    gate: Gate,
    module: nn.Module,
    batch: Batch,
    rate: float,
    losing: Callable[[], AbstractContextManager[None]],
) -> list[float]:
    # Objects created here are released before the process group.
    given, losses = _optimizer(module, rate), []
    while gate():
        with losing():
            loss = loss_of(module, batch)
            given.zero_grad()
            loss.backward()
        given.step()
        losses.append(_whole(loss))
    return losses


def _whole(loss: torch.Tensor) -> float:
    return (loss.full_tensor() if isinstance(loss, DTensor) else loss).item()


def _optimizer(module: nn.Module, rate: float) -> torch.optim.Optimizer:
    """Return AdamW as in tensoropt-opt; fused, it takes tensors of one kind at a time."""
    parameters = list(module.parameters())
    kinds = [[p for p in parameters if isinstance(p, DTensor) == kind] for kind in (False, True)]
    groups: list[dict[str, Any]] = [{"params": kind} for kind in kinds if kind]
    return torch.optim.AdamW(groups, lr=rate, weight_decay=0.0, fused=True)


def _part(data: Path, rank: int, ranks: int) -> Batch:
    with np.load(data) as arrays:
        held = {name: np.array_split(arrays[name], ranks)[rank] for name in arrays}
    return {name: torch.from_numpy(array) for name, array in held.items()}

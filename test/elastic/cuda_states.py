"""States on CUDA devices; as a program, a process that has one and says how to reach it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tensoropt.elastic.generation.on_cuda import CudaMemory
from tensoropt.runtime.device.cuda import StandInProvider, cuda_facts
from tensoropt.runtime.layout.mesh_layout import MeshLayout, parse_layout
from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.arena import Block

__all__ = ["WHOLE", "Giver", "plan_of", "values"]

TYPES = ("float32", "bfloat16", "int64")
WHOLE = parse_layout(["R"], [1])
SHAPE = (6, 5)


def plan_of(shape: Sequence[int], layout: MeshLayout) -> SimpleNamespace:
    """What a block is made of: tensors of one shape, of several types."""
    tensors = [Tensor(dtype, dtype, tuple(shape), layout) for dtype in TYPES]
    state = [SimpleNamespace(name=tensor.name, tensor=tensor) for tensor in tensors]
    return SimpleNamespace(
        state=state,
        folder=Path("plan"),
        state_of=lambda rank: state,
        stage=lambda rank: 0,
        place=lambda rank: rank,
        owners=lambda own: range(layout.mesh.size),
    )


def values(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    return (np.arange(math.prod(shape)) % 251).reshape(shape).astype(dtype)


class Giver:
    """Another process with a state of 6 x 5 on GPU 2."""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, __file__], text=True, **pipes)
        self.block = Block(**json.loads(self.process.stdout.readline()))

    def publish(self) -> None:
        """Have it copy its state to the host's memory."""
        self.process.stdin.write("publish\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def main() -> None:
    cuda_facts()
    memory = CudaMemory(plan_of(SHAPE, WHOLE), 0, StandInProvider(2))
    for array in memory.arrays().values():
        array.put(values(SHAPE, array.dtype))
    print(json.dumps(memory.block().facts()), flush=True)
    while sys.stdin.readline():
        memory.publish()
        print(flush=True)


if __name__ == "__main__":
    main()

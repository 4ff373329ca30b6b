"""One rank of PyTorch: lays tensors out by a JSON of placements, and keeps its own parts.

``python dtensor_rank.py FILE.json TENSORS.npz STORE RANK OUT.npz``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import tensor as dtensor
from torch.distributed.device_mesh import init_device_mesh


def main(document: str, tensors: str, store: str, rank: str, out: str) -> None:
    said, arrays = json.loads(Path(document).read_text()), np.load(tensors)
    shape = tuple(said["mesh"]["shape"])
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(np.prod(shape))
    )
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=tuple(said["mesh"]["dim_names"]))
    parts = {}
    for name in arrays.files:
        placements = [getattr(dtensor, kind)(*made) for kind, *made in said["parameters"][name]]
        laid = dtensor.distribute_tensor(torch.from_numpy(arrays[name]), mesh, placements)
        parts[name] = laid.to_local().numpy()
    np.savez(out, **parts)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

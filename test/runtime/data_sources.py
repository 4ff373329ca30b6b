"""Samples whose values are their numbers, in files of every kind, and how tests read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tensoropt.runtime.layout.mesh_layout import parse_layout
from tensoropt.runtime.plan.plan import Tensor

X = Tensor("x", "float32", (4, 3), parse_layout(["S(0)"], [2]))
LABELS = Tensor("labels", "int64", (4,), parse_layout(["R"], [2]))
INPUTS = (X, LABELS)
WHOLE = {"x": (slice(0, 4), slice(0, 3)), "labels": (slice(0, 4),)}


def arrays(count: int, first: int = 0) -> dict[str, np.ndarray]:
    labels = np.arange(first, first + count)
    return {"x": np.stack([labels] * 3, 1).astype(np.float32), "labels": labels}


def folder_of(place: Path, counts: Sequence[int], save=np.savez) -> Path:
    """Write .npz files of so many samples, numbered on from one to the next."""
    place.mkdir(exist_ok=True)
    for number, count in enumerate(counts):
        save(place / f"part{number:03d}.npz", **arrays(count, sum(counts[:number])))
    return place


def labels_of(source, position: int, count: int = 4) -> list[int]:
    return source.read(position, {"labels": (slice(0, count),)})["labels"].tolist()

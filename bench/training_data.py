"""Random training samples, the same in every run.

Images and their classes are noise. Texts are random tokens, and the label of a token is the next
token. Segments and masks are random too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

__all__ = ["batch_size", "draw"]

_TWO_VALUED = ("segments", "mask")
"""Integer inputs that are not tokens."""


def draw(path: Path, samples: int, seed: int = 0) -> dict[str, Any]:
    """Return arrays [samples, ...] by name: every input of the model, and ``labels``.

    Tokens and labels are below the number of classes, the last size of the output ``scores``.
    """
    graph = onnx.load(path, load_external_data=False).graph
    rng = np.random.default_rng(seed)
    classes = _shape(graph.output[0])[-1]
    arrays = {held.name: _array(held, samples, classes, rng) for held in graph.input}
    first = arrays[graph.input[0].name]
    if first.dtype == np.int64:
        new = rng.integers(0, classes, (samples, 1))
        return {**arrays, "labels": np.concatenate([first[:, 1:], new], axis=1)}
    return {**arrays, "labels": rng.integers(0, classes, samples)}


def batch_size(path: Path) -> int:
    """Return the number of samples of a step: the first size of the inputs."""
    return _shape(onnx.load(path, load_external_data=False).graph.input[0])[0]


def _shape(held: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in held.type.tensor_type.shape.dim]


def _array(held: onnx.ValueInfoProto, samples: int, classes: int, rng: np.random.Generator) -> Any:
    shape = (samples, *_shape(held)[1:])
    if held.type.tensor_type.elem_type == onnx.TensorProto.INT64:
        return rng.integers(0, 2 if held.name in _TWO_VALUED else classes, shape)
    return rng.standard_normal(shape, dtype=np.float32)

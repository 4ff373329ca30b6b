"""Operators that ONNX Runtime runs and the standard has no test for: they import and export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from importer.models import F32, model, node, run, saved, untyped, value

from tensoropt.compiler.exporter.rank import export_model
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.importer.importer import import_model

pytestmark = pytest.mark.usefixtures("mlir_context")

IMAGE = np.arange(2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)
REGIONS = np.array([[0, 0, 0, 3, 3], [1, 1, 1, 2, 3]], np.float32)

# (operator, opset, operands, attributes, whether it draws numbers)
CASES: list[tuple[str, int, list[Any], dict[str, Any], bool]] = [
    ("DFT", 20, [np.ones((1, 8, 1), np.float32)], {}, False),
    ("GlobalLpPool", 2, [IMAGE], {"p": 3}, False),
    ("MaxRoiPool", 1, [IMAGE, REGIONS], {"pooled_shape": [2, 2]}, False),
    ("Multinomial", 20, [np.ones((2, 5), np.float32)], {"sample_size": 7, "seed": 1.0}, True),
    ("RandomNormal", 20, [], {"shape": [3, 4], "seed": 1.0}, True),
    ("RandomNormalLike", 20, [IMAGE], {"seed": 1.0}, True),
    ("RandomUniform", 20, [], {"shape": [3, 4], "seed": 1.0}, True),
    ("RandomUniformLike", 20, [IMAGE], {"seed": 1.0}, True),
    ("Scatter", 10, [IMAGE[0, 0], np.array([[1, 0]]), IMAGE[1, 0, :1, :2]], {"axis": 1}, False),
    ("Upsample", 9, [IMAGE, np.array([1, 1, 2, 2], np.float32)], {"mode": "nearest"}, False),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "operands", "held", "draws"), CASES, ids=[case[0] for case in CASES]
)
def test_it_computes_the_same(
    op_type: str, opset: int, operands: list[Any], held: dict[str, Any], draws: bool, tmp_path: Path
) -> None:
    names = [f"x{i}" for i in range(len(operands))]
    given = [value(name, F32 if array.dtype == np.float32 else 7, array.shape)
             for name, array in zip(names, operands, strict=True)]  # fmt: skip
    proto = model([node(op_type, names, ["y"], **held)], given, [untyped("y")], opset=opset)
    path, inputs = saved(proto, tmp_path), dict(zip(names, operands, strict=True))
    files = export_model(import_model(path), tmp_path / "out.onnx", ParameterSource(path))
    (wanted,), (got,) = run(path, inputs), run(files[0], inputs)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    assert draws or np.array_equal(got, wanted)

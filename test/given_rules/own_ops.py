"""A library of operators of a person's own, a model of them, and the file of their rules."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

import onnx
from onnx import parser

__all__ = ["RULES", "library", "model"]

_ROOT = Path(__file__).parent.parent.parent

RULES = """
[[rule]]
op = "my.ops.Twice"
map = "(i, j) -> (i, j)"
linear = [[0]]

[[rule]]
op = "my.ops.RowSum"
map = "(i, j) -> (i)"
factors = ["i", "j sum"]
linear = [[0]]
"""

_MODEL = """<ir_version: 10, opset_import: ["" : 20, "my.ops" : 1]>
g (float[8,6] x, float[6,4] w) => (float[8,4] y, float[8] z) {
  [twice] t = my.ops.Twice (x)
  [product] y = MatMul (t, w)
  [rows] z = my.ops.RowSum (t)
}"""


@functools.cache
def library() -> Path:
    """Return the library, compiled from the interface of our own."""
    ops = _ROOT / "runtime" / "ops"
    sources = [Path(__file__).with_name("my_ops.cpp")]
    sources += [ops / "ort" / name for name in ("custom_op.cpp", "ort_api.cpp")]
    path = Path(tempfile.mkdtemp(prefix="tensoropt-own-ops-")) / "libmy_ops.so"
    flags = ["-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{ops}"]
    subprocess.run(["c++", *flags, "-o", str(path), *map(str, sources)], check=True)
    return path


def model(folder: Path) -> Path:
    """Write the model, which does not say of what shape the operators' results are."""
    path = folder / "own.onnx"
    onnx.save(parser.parse_model(_MODEL), path)
    return path

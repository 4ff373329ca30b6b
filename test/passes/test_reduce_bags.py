"""Loops over bags, in the forms of both of PyTorch's exporters: PyTorch says what is right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from importer.models import run, saved
from training.harness import check_model

from tensoropt.compiler.exporter.rank import export_model
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.pipeline import driver
from tensoropt.dialects.onnx import function, walk

torch = pytest.importorskip("torch", reason="make build installs it")

ROWS, WIDTH, INDICES = 9, 4, 12
X = np.random.default_rng(0).permutation(np.arange(INDICES) % ROWS)
PADDING = int(X[0])
KINDS = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}
EVEN, UNEVEN, WITH_EMPTY = [0, 3, 6, 9], [0, 1, 6, 7], [0, 5, 5, 12]

HEAD = """<ir_version: 10, opset_import: ["": 20]>
bags (int64[12] x, int64[4] o, double[9, 4] w) => (y)
<int64[1] zero = {0}, int64[1] flat = {-1}, int64[1] twelve = {12}, int64 one = {1},
 int64 two = {2},
 int64 count = {4}, int64 first = {0}, int64 three = {3}, int64 nine = {9},
 int64 padding = {PADDING},
 int64[1] begin = {1}, int64[1] far = {9223372036854775807}, bool yes = {1}>
{ offsets = Concat <axis = 0> (o, twelve)
"""
# The older exporter picks the rows of a bag in the loop, and stacks what they reduce to.
OLDER = """
  ends = Slice (offsets, begin, far, zero, begin)
  y = Loop (count, yes) <body = body (int64 i, bool c) => (bool d, double[4] v) {
    d = Identity (c)
    s = Gather (offsets, i)
    e = Gather (ends, i)
    s1 = Unsqueeze (s, zero)
    e1 = Unsqueeze (e, zero)
    own = Slice (x, s1, e1, zero)
    r = Gather (w, own)
    v = %s <keepdims = 0> (r, zero)
  }>
}"""
# The newer one slices rows that are there, and has forms of its own for the last bag.
NEWER = """
  rows = Gather (w, x)
  empty = SequenceEmpty <dtype = 11> ()
  n, all = Loop (, yes, first, empty) <body = body (
    int64 step, bool c, int64 i, seq(double[1, 4]) held
  ) => (bool d, int64 j, seq(double[1, 4]) more) {
    at = Reshape (i, flat)
    after = Add (at, one)
    behind = Add (at, two)
    s = Slice (offsets, at, after)
    e = Slice (offsets, after, behind)
    same = Equal (s, e)
    v = If (same) <
      then_branch = nothing () => (double[1, 4] z) {
        z = Constant <value = double[1, 4] {0, 0, 0, 0}> ()
      },
      else_branch = own () => (double[1, 4] z) { %s }
    >
    more = SequenceInsert (held, v)
    j = Add (i, one)
    d = Less (j, count)
  }>
  y = ConcatFromSequence <axis = 0> (all)
}"""
# With padding, it collects the rows that are none in a loop of its own.
PADDED = """
  rows = Gather (w, x)
  empty = SequenceEmpty <dtype = 11> ()
  n, all = Loop (, yes, first, empty) <body = body (
    int64 step, bool c, int64 i, seq(double[1, 4]) held
  ) => (bool d, int64 j, seq(double[1, 4]) more) {
    after = Add (i, one)
    s = Gather (offsets, i)
    e = Gather (offsets, after)
    begins = Less (s, e)
    nothing = Constant <value = int64[0] {}> ()
    places, end = Loop (, begins, nothing, s) <body = inner (
      int64 t, bool u, int64[k] known, int64 p
    ) => (bool goes, int64[l] longer, int64 q) {
      index = Gather (x, p)
      below = Less (index, first)
      wrapped = If (below) <
        then_branch = wrap () => (int64 a) { a = Add (index, nine) },
        else_branch = plain () => (int64 a) { a = Identity (index) }
      >
      is_padding = Equal (wrapped, padding)
      is_kept = Not (is_padding)
      longer = If (is_kept) <
        then_branch = adds () => (int64[m] b) {
          p1 = Reshape (p, flat)
          b = Concat <axis = 0> (known, p1)
        },
        else_branch = leaves () => (int64[n] b) { b = Identity (known) }
      >
      q = Add (p, one)
      goes = Less (q, e)
    }>
    size = Size (places)
    none = Equal (size, first)
    v = If (none) <
      then_branch = nothing_kept () => (double[1, 4] z) {
        z = Constant <value = double[1, 4] {0, 0, 0, 0}> ()
      },
      else_branch = own () => (double[1, 4] z) { r = Gather (rows, places) z = %s (r, zero) }
    >
    more = SequenceInsert (held, v)
    j = Add (i, one)
    d = Less (j, count)
  }>
  y = ConcatFromSequence <axis = 0> (all)
}"""
OF_BAG = {
    "sum": "r = Slice (rows, s, e) z = ReduceSum (r, zero)",
    "mean": """r = Slice (rows, s, e)
      is_last = Equal (i, three)
      z = If (is_last) <
        then_branch = last () => (double[1, 4] q) {
          t = ReduceSum (r, zero)
          left = Sub (twelve, s)
          some = Greater (left, first)
          q = If (some) <
            then_branch = divided () => (double[1, 4] u) { f = CastLike (left, w) u = Div (t, f) },
            else_branch = whole () => (double[1, 4] u) { u = Identity (t) }
          >
        },
        else_branch = before () => (double[1, 4] q) { q = ReduceMean (r, zero) }
      >""",
    "max": """is_last = Equal (i, three)
      r = If (is_last) <
        then_branch = last () => (double[m, 4] q) { q = Slice (rows, s, twelve) },
        else_branch = before () => (double[n, 4] q) { q = Slice (rows, s, e) }
      >
      z = ReduceMax (r, zero)""",
}


def model(form: str, mode: str) -> onnx.ModelProto:
    body = {"older": OLDER, "newer": NEWER, "padded": PADDED}[form]
    inside = OF_BAG[mode] if form == "newer" else KINDS[mode]
    text = HEAD.replace("PADDING", str(PADDING)) + body % inside
    proto: onnx.ModelProto = onnx.parser.parse_model(text)
    return proto


def feeds(offsets: list[int]) -> dict[str, Any]:
    table = np.random.default_rng(1).normal(size=(ROWS, WIDTH))
    return {"x": X, "o": np.array(offsets), "w": table}


def expected(tensors: Mapping[str, Any], form: str, mode: str) -> Any:
    x, o, w = (tensors[name] for name in ("x", "o", "w"))
    padding = PADDING if form == "padded" else None
    return torch.nn.functional.embedding_bag(x, w, o, mode=mode, padding_idx=padding)


@pytest.mark.parametrize("mode", KINDS)
@pytest.mark.parametrize("form", ["older", "newer", "padded"])
@pytest.mark.parametrize("offsets", [EVEN, UNEVEN, WITH_EMPTY])
@pytest.mark.parametrize("known", [False, True])
def test_bags_are_those_of_pytorch(
    form: str, mode: str, offsets: list[int], known: bool, tmp_path: Path
) -> None:
    proto, inputs = model(form, mode), feeds(offsets)
    if known:
        own = next(i for i in proto.graph.input if i.name == "o")
        proto.graph.input.remove(own)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(inputs["o"], "o"))
    module = driver.load(saved(proto, tmp_path), {})
    driver.run_phase(module, "prepare", training=True)
    names = {op.name for op in walk(function(module))}
    assert "onnx.Loop" not in names
    assert ("onnx.Reshape" in names) == (known and offsets == EVEN)
    source = ParameterSource(tmp_path / "model.onnx")
    written = export_model(module, tmp_path / "out.onnx", source)
    given = {name: inputs[name] for name in ("x", "w", *([] if known else ["o"]))}
    wanted = expected({name: torch.tensor(held) for name, held in inputs.items()}, form, mode)
    np.testing.assert_allclose(run(written[0], given)[0], wanted.numpy(), rtol=1e-12)


def test_inference_scatters_nothing(tmp_path: Path) -> None:
    module = driver.load(saved(model("newer", "sum"), tmp_path), {})
    driver.run_phase(module, "prepare")
    assert "onnx.Loop" in {op.name for op in walk(function(module))}


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("form", ["older", "newer", "padded"])
def test_gradients_of_tables(form: str, mode: str) -> None:
    vjp = check_model(model(form, mode), feeds(UNEVEN), torch=lambda t: expected(t, form, mode))
    assert "Loop" not in vjp.ops

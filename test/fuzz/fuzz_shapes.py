"""Compare the shapes that the compiler infers, and the numbers it folds, with ONNX Runtime's.

Each case is a small graph of shape arithmetic with odd bounds, sizes and attributes. What ONNX
Runtime makes of it, without its optimiser, is the truth. Cases that it refuses count for nothing.
Ends in ``N cases, M differ``; exit status 1 if any differs.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.pipeline.driver import load, run_phase
from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import constant_value, function

__all__ = ["CASES", "Case", "cases", "difference", "main"]

_BIG, _SMALL = 2**63 - 1, -(2**63)
_BOUNDS = (0, 1, -1, 2, -2, 3, 5, -5, 7, 100, -100, 2**31 - 1, 2**31, -(2**31), _BIG, _SMALL,
           _BIG - 1, _SMALL + 1)  # fmt: skip
_STEPS = (1, -1, 2, -2, 3, -3, 100, -100, 2**31, _BIG, _SMALL, _SMALL + 1)
_SHOWN = 64  # elements of a result that is compared by value

node = helper.make_node
Rng = random.Random
Shape = list[int]


@dataclass(frozen=True)
class Case:
    """Nodes over inputs ``x0``, ``x1``... of the given shapes, and literals by name."""

    nodes: Sequence[onnx.NodeProto]
    inputs: Sequence[Shape] = ()
    literals: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 20

    def model(self) -> bytes:
        """Return the model whose outputs are all results that no other node reads."""
        read = {name for made in self.nodes for name in made.input}
        ends = [n for made in self.nodes for n in made.output if n and n not in read]
        inputs = [
            helper.make_tensor_value_info(f"x{at}", TensorProto.FLOAT, shape)
            for at, shape in enumerate(self.inputs)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in ends]
        stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in self.literals.items()]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, stored)
        versions = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=10).SerializeToString()

    def feeds(self) -> dict[str, Any]:
        rng = np.random.default_rng(0)
        return {
            f"x{at}": rng.integers(0, 3, shape).astype(np.float32)
            for at, shape in enumerate(self.inputs)
        }

    def __str__(self) -> str:
        said = [
            f"{made.op_type} { {a.name: helper.get_attribute_value(a) for a in made.attribute} }"
            for made in self.nodes
        ]
        held = {name: np.asarray(value).tolist() for name, value in self.literals.items()}
        return f"{'; '.join(said)} of {list(self.inputs)} with {held}, opset {self.opset}"


def _sizes(rng: Rng, least: int = 1, most: int = 4) -> Shape:
    return [rng.choice((0, 1, 2, 3, 4, 5)) for _ in range(rng.randint(least, most))]


def _axis(rng: Rng, rank: int) -> int:
    return rng.randrange(-rank, rank)


def _axes(rng: Rng, rank: int, least: int = 1) -> list[int]:
    """Return some axes, each counted from the start or from the end."""
    found = rng.sample(range(rank), rng.randint(min(least, rank), rank))
    return [axis - rank if rng.random() < 0.4 else axis for axis in found]


def _slice(rng: Rng) -> Case:
    shape = _sizes(rng)
    axes = _axes(rng, len(shape))
    literals = {
        "starts": np.array([rng.choice(_BOUNDS) for _ in axes]),
        "ends": np.array([rng.choice(_BOUNDS) for _ in axes]),
        "axes": np.array(axes),
        "steps": np.array([rng.choice(_STEPS) for _ in axes]),
    }
    nodes = [node("Slice", ["x0", *literals], ["y"]), node("Size", ["y"], ["size"]),
             node("Shape", ["y"], ["shape"])]  # fmt: skip
    return Case(nodes, [shape], literals)


def _range(rng: Rng) -> Case:
    bounds = (0, 1, -1, 2, 5, -5, 10, 7, _BIG, _SMALL)
    while True:
        start, limit, delta = rng.choice(bounds), rng.choice(bounds), rng.choice(_STEPS)
        if abs((limit - start) / delta) < 1000:
            break
    held = (np.int64(start), np.int64(limit), np.int64(delta))
    return Case([node("Range", ["a", "b", "c"], ["y"])], [], dict(zip("abc", held, strict=True)))


def _float_range(rng: Rng) -> Case:
    kind = rng.choice((np.float32, np.float64))
    held = (rng.uniform(-5, 5), rng.uniform(-5, 5), rng.choice((0.1, -0.1, 0.3, 1.0, -1.0, 0.7)))
    literals = dict(zip("abc", map(kind, held), strict=True))
    return Case([node("Range", [*"abc"], ["y"])], [], literals)


def _reshape(rng: Rng) -> Case:
    shape = _sizes(rng, 0)
    wanted = [rng.choice((0, -1, 1, 2, 3, math.prod(shape))) for _ in range(rng.randint(0, 4))]
    made = node("Reshape", ["x0", "shape"], ["y"], allowzero=rng.choice((0, 0, 1)))
    return Case([made], [shape], {"shape": np.array(wanted, np.int64)})


def _expand(rng: Rng) -> Case:
    shape = _sizes(rng, 0, 3)
    wanted = [rng.choice((1, size, 2 if size == 1 else 1)) for size in shape]
    wanted = [rng.choice((1, 2, 0, 3)) for _ in range(rng.randint(0, 2))] + wanted
    wanted = wanted[rng.randint(0, 1) :]
    made = node("Expand", ["x0", "shape"], ["y"])
    return Case([made], [shape], {"shape": np.array(wanted, np.int64)})


def _tile(rng: Rng) -> Case:
    shape = _sizes(rng, 1, 3)
    literals = {"repeats": np.array([rng.choice((0, 1, 2, 3)) for _ in shape])}
    return Case([node("Tile", ["x0", "repeats"], ["y"])], [shape], literals)


def _pad(rng: Rng) -> Case:
    shape, mode = _sizes(rng, 1, 3), rng.choice(("constant", "edge", "reflect", "wrap"))
    axes = _axes(rng, len(shape))
    pads = np.array([rng.choice((0, 1, -1, 2, -2, 3)) for _ in 2 * axes])
    made = node("Pad", ["x0", "pads", "", "axes"], ["y"], mode=mode)
    return Case([made], [shape], {"pads": pads, "axes": np.array(axes)})


def _gather(rng: Rng) -> Case:
    shape = _sizes(rng, 1, 3)
    indices = np.array([[rng.choice((0, -1, 1)) for _ in range(rng.randint(0, 3))]], np.int64)
    made = node("Gather", ["x0", "indices"], ["y"], axis=_axis(rng, len(shape)))
    return Case([made], [shape], {"indices": indices})


def _split(rng: Rng) -> Case:
    shape, count = _sizes(rng, 1, 3), rng.randint(1, 4)
    axis, names = _axis(rng, len(shape)), [f"y{at}" for at in range(count)]
    if rng.random() < 0.5:
        return Case([node("Split", ["x0"], names, axis=axis, num_outputs=count)], [shape])
    sizes = [rng.randint(0, 3) for _ in names]
    shape[axis] = sum(sizes)
    return Case([node("Split", ["x0", "sizes"], names, axis=axis)], [shape],
                {"sizes": np.array(sizes)})  # fmt: skip


def _top(rng: Rng) -> Case:
    shape = _sizes(rng, 1, 3)
    axis = _axis(rng, len(shape))
    made = node("TopK", ["x0", "k"], ["y0", "y1"], axis=axis)
    return Case([made], [shape], {"k": np.array([rng.choice((0, 1, 2, shape[axis]))])})


def _one_hot(rng: Rng) -> Case:
    shape = _sizes(rng, 0, 3)
    nodes = [node("Cast", ["x0"], ["at"], to=TensorProto.INT64),
             node("OneHot", ["at", "depth", "values"], ["y"],
                  axis=rng.randint(-len(shape) - 1, len(shape)))]  # fmt: skip
    depth = rng.choice((np.int64(1), np.int64(3), np.array([4])))
    return Case(nodes, [shape], {"depth": depth, "values": np.array([0, 1])})


def _unsqueeze(rng: Rng) -> Case:
    shape, more = _sizes(rng, 0, 3), rng.randint(1, 3)
    axes = _axes(rng, len(shape) + more)[:more]
    made = node("Unsqueeze", ["x0", "axes"], ["y"])
    return Case([made], [shape], {"axes": np.array(axes)})


def _squeeze(rng: Rng) -> Case:
    shape = [rng.choice((1, 1, 2, 0)) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.4:
        return Case([node("Squeeze", ["x0"], ["y"])], [shape])
    axes = [at - rng.choice((0, len(shape))) for at, size in enumerate(shape) if size == 1]
    axes = [axis for axis in axes if rng.random() < 0.7]
    made = node("Squeeze", ["x0", "axes"], ["y"])
    return Case([made], [shape], {"axes": np.array(axes, np.int64)})


def _concat(rng: Rng) -> Case:
    shape = _sizes(rng, 1, 3)
    other, axis = list(shape), _axis(rng, len(shape))
    other[axis] = rng.choice((0, 1, 3))
    return Case([node("Concat", ["x0", "x1"], ["y"], axis=axis)], [shape, other])


def _shape(rng: Rng) -> Case:
    bounds = {name: rng.choice(_BOUNDS) for name in ("start", "end") if rng.random() < 0.7}
    return Case([node("Shape", ["x0"], ["y"], **bounds)], [_sizes(rng, 0)])


def _reduce(rng: Rng) -> Case:
    shape, op_type = _sizes(rng, 0), rng.choice(("ReduceSum", "ReduceMax", "ReduceProd"))
    flags = {"keepdims": rng.randint(0, 1), "noop_with_empty_axes": rng.randint(0, 1)}
    if rng.random() < 0.3:
        return Case([node(op_type, ["x0"], ["y"], **flags)], [shape])
    axes = np.array(_axes(rng, len(shape), 0), np.int64)
    return Case([node(op_type, ["x0", "axes"], ["y"], **flags)], [shape], {"axes": axes})


def _arg_max(rng: Rng) -> Case:
    shape, op_type = _sizes(rng), rng.choice(("ArgMax", "ArgMin"))
    made = node(op_type, ["x0"], ["y"], axis=_axis(rng, len(shape)), keepdims=rng.randint(0, 1))
    return Case([made], [shape])


def _flatten(rng: Rng) -> Case:
    shape = _sizes(rng, 0)
    axis = rng.randint(-len(shape), len(shape))
    return Case([node("Flatten", ["x0"], ["y"], axis=axis)], [shape])


def _resize(rng: Rng) -> Case:
    shape = [rng.randint(1, 5) for _ in range(rng.choice((3, 4)))]
    how: dict[str, Any] = {"mode": rng.choice(("nearest", "linear"))}
    if rng.random() < 0.6:
        scales = [1, 1, *(rng.choice((0.5, 2, 0.3, 0.7, 1.5, 0.999, 0.1)) for _ in shape[2:])]
        made = node("Resize", ["x0", "", "scales"], ["y"], **how)
        return Case([made], [shape], {"scales": np.array(scales, np.float32)})
    how["keep_aspect_ratio_policy"] = rng.choice(("stretch", "not_larger", "not_smaller"))
    made = node("Resize", ["x0", "", "", "sizes"], ["y"], axes=list(range(2, len(shape))), **how)
    return Case([made], [shape], {"sizes": np.array([rng.randint(1, 7) for _ in shape[2:]])})


def _upsample(rng: Rng) -> Case:
    shape = [rng.randint(1, 5) for _ in range(4)]
    scales = np.array([1, 1, *(rng.choice((1, 1.5, 2, 1.7, 2.3)) for _ in "hw")], np.float32)
    return Case([node("Upsample", ["x0", "s"], ["y"])], [shape], {"s": scales}, opset=9)


def _product(rng: Rng) -> Case:
    deep = rng.choice((0, 1, 3))
    left, right = [*_sizes(rng, 0, 2), 2, deep], [deep, rng.choice((0, 4))]
    left, right = rng.choice(((left, right), ([deep], right), (left, [deep])))
    return Case([node("MatMul", ["x0", "x1"], ["y"])], [left, right])


def _broadcast(rng: Rng) -> Case:
    shape = _sizes(rng, 0)
    other = [rng.choice((1, size)) for size in shape][rng.randint(0, len(shape)) :]
    return Case([node("Add", ["x0", "x1"], ["y"])], [shape, other])


def _gather_nd(rng: Rng) -> Case:
    shape = [rng.choice((2, 3)) for _ in range(rng.randint(1, 4))]
    batch = rng.randint(0, len(shape) - 1)
    outer = [] if rng.random() < 0.3 else [rng.choice((0, 2))]
    indices = np.zeros([*shape[:batch], *outer, rng.randint(1, len(shape) - batch)])
    made = node("GatherND", ["x0", "indices"], ["y"], batch_dims=batch)
    return Case([made], [shape], {"indices": indices.astype(np.int64)})


def _compress(rng: Rng) -> Case:
    shape = _sizes(rng, 1, 3)
    axis = {"axis": _axis(rng, len(shape))} if rng.random() < 0.7 else {}
    taken = np.array([rng.random() < 0.5 for _ in range(rng.randint(0, 3))], np.bool_)
    return Case([node("Compress", ["x0", "taken"], ["y"], **axis)], [shape], {"taken": taken})


def _crop(rng: Rng) -> Case:
    shape = _sizes(rng, 1, 3)
    axes = _axes(rng, len(shape))
    made = node("CenterCropPad", ["x0", "sizes"], ["y"], axes=axes)
    return Case([made], [shape], {"sizes": np.array([rng.choice((0, 1, 3, 6)) for _ in axes])})


_EQUATIONS: tuple[tuple[str, list[Shape]], ...] = (
    ("ij,jk->ik", [[2, 3], [3, 4]]),
    ("...i,...i->...", [[2, 1, 3], [4, 3]]),
    ("ii->i", [[3, 3]]),
    ("ij->", [[2, 0]]),
    ("...ij->...ji", [[2, 3, 4]]),
    ("ij,jk", [[1, 3], [3, 4]]),
    ("bij,bjk->bik", [[1, 2, 3], [5, 3, 2]]),
    ("ij,ij->ij", [[1, 3], [2, 3]]),
    ("...,...->...", [[1, 3], [2, 1]]),
)


def _einsum(rng: Rng) -> Case:
    equation, shapes = rng.choice(_EQUATIONS)
    names = [f"x{at}" for at in range(len(shapes))]
    return Case([node("Einsum", names, ["y"], equation=equation)], shapes)


def _nonzero(rng: Rng) -> Case:
    return Case([node("NonZero", ["x0"], ["y"])], [_sizes(rng, 0, 3)])


def _constant(rng: Rng) -> Case:
    shape = np.array(_sizes(rng, 0), np.int64)
    return Case([node("ConstantOfShape", ["shape"], ["y"])], [], {"shape": shape})


def _trilu(rng: Rng) -> Case:
    made = node("Trilu", ["x0", "k"], ["y"], upper=rng.randint(0, 1))
    return Case([made], [_sizes(rng, 2)], {"k": np.int64(rng.choice((0, 1, -3, 100, -100)))})


def _unique(rng: Rng) -> Case:
    shape = [size + 1 for size in _sizes(rng, 1, 3)]
    axis = {"axis": _axis(rng, len(shape))} if rng.random() < 0.5 else {}
    return Case([node("Unique", ["x0"], ["y"], **axis)], [shape])


def _blocks(rng: Rng) -> Case:
    size, rows = rng.randint(1, 3), rng.choice((0, 1, 2))
    deep = node("SpaceToDepth", ["x0"], ["y"], blocksize=size)
    wide = node("DepthToSpace", ["x0"], ["y"], blocksize=size)
    made, shape = rng.choice(
        ((deep, [1, 2, rows * size, 2 * size]), (wide, [1, 2 * size * size, rows, 2]))
    )
    return Case([made], [shape])


def _spatial(rng: Rng) -> tuple[Shape, Shape, dict[str, Any]]:
    """Return spatial sizes, those of a window, and how it lies."""
    rank = rng.choice((1, 1, 2))
    sizes = [rng.randint(1, 9) for _ in range(rank)]
    kernel = [rng.randint(1, 4) for _ in range(rank)]
    how: dict[str, Any] = {"strides": [rng.randint(1, 4) for _ in kernel]}
    if rng.random() < 0.4:
        how["dilations"] = [rng.randint(1, 3) for _ in kernel]
    dice = rng.random()
    if dice < 0.35:
        how["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif dice < 0.8:
        how["pads"] = [rng.randint(0, size - 1) for size in (*kernel, *kernel)]
    return sizes, kernel, how


_POOLS = {"MaxPool": (8, 10, 12, 22), "AveragePool": (10, 19, 22), "LpPool": (18, 22)}


def _pool(rng: Rng) -> Case:
    """Pool twice, so that a wrong size leads to another."""
    sizes, kernel, how = _spatial(rng)
    op_type = rng.choice(tuple(_POOLS))
    opset = rng.choice(_POOLS[op_type])
    if opset >= 10:
        how["ceil_mode"] = rng.choice((0, 1, 1))
    if (op_type == "MaxPool" and opset < 10) or (op_type == "AveragePool" and opset < 19):
        how.pop("dilations", None)
    if op_type == "AveragePool":
        how["count_include_pad"] = rng.randint(0, 1)
    nodes = [node(op_type, ["x0"], ["h"], kernel_shape=kernel, **how), node("Relu", ["h"], ["r"]),
             node("MaxPool", ["r"], ["y"], kernel_shape=[1] * len(kernel),
                  strides=[2] * len(kernel))]  # fmt: skip
    return Case(nodes, [[1, 2, *sizes]], opset=opset)


def _quantized_pool(rng: Rng) -> Case:
    sizes, kernel, how = _spatial(rng)
    how.pop("dilations", None)
    scale = {"s": np.float32(0.1), "z": np.uint8(3)}
    nodes = [node("QuantizeLinear", ["x0", "s", "z"], ["q"]),
             node("QLinearAveragePool", ["q", "s", "z", "s", "z"], ["p"], domain="com.microsoft",
                  kernel_shape=kernel, ceil_mode=rng.randint(0, 1), **how),
             node("DequantizeLinear", ["p", "s", "z"], ["y"])]  # fmt: skip
    return Case(nodes, [[1, 2, *sizes]], scale)


def _convolution(rng: Rng) -> Case:
    sizes, kernel, how = _spatial(rng)
    op_type = rng.choice(("Conv", "ConvTranspose"))
    if op_type == "ConvTranspose" and rng.random() < 0.3:
        how["output_padding"] = [rng.randint(0, stride - 1) for stride in how["strides"]]
    elif op_type == "ConvTranspose" and rng.random() < 0.3:
        how["output_shape"] = [rng.randint(1, 20) for _ in kernel]
    return Case([node(op_type, ["x0", "x1"], ["y"], **how)], [[1, 2, *sizes], [2, 2, *kernel]])


CASES: tuple[Callable[[Rng], Case], ...] = (
    _slice, _slice, _slice, _range, _float_range, _reshape, _expand, _tile, _pad, _gather, _split,
    _top, _one_hot, _unsqueeze, _squeeze, _concat, _shape, _reduce, _arg_max, _flatten, _resize,
    _upsample, _product, _broadcast, _gather_nd, _compress, _crop, _einsum, _nonzero, _constant,
    _trilu, _unique, _blocks, _pool, _pool, _pool, _quantized_pool, _convolution, _convolution,
)  # fmt: skip


def cases(count: int, seed: int) -> Iterator[Case]:
    """Yield ``count`` cases, each kind as often as another."""
    rng = Rng(seed)
    for index in range(count):
        yield CASES[index % len(CASES)](rng)


def difference(case: Case, folder: Path) -> str | None:
    """Return how the compiler differs from ONNX Runtime, ``None`` if it does not."""
    try:
        wanted = native.call(_run, case.model(), case.feeds(), seconds=20)
    except (native.NativeError, native.NativeFailureError):
        return None
    path = folder / "model.onnx"
    path.write_bytes(case.model())
    try:
        module = load(path, {})
        run_phase(module, "prepare")
    except UserError as error:
        return f"refused: {error}, expected {[list(array.shape) for array in wanted]}"
    pairs = zip(_results(module), wanted, strict=True)
    return next((found for own, array in pairs if (found := _unlike(own, array))), None)


def _unlike(own: ir.Value, array: Any) -> str | None:
    """Return how a result of the module differs from what ONNX Runtime computed."""
    value = constant_value(own)
    small = value is not None and array.dtype == np.int64 and array.size <= _SHOWN
    if small and not np.array_equal(value, array):
        return f"folded to {value}, expected {array}"
    return None if _fits(own.type, array.shape) else f"{own.type}, expected {list(array.shape)}"


def _run(model: bytes, feeds: dict[str, Any]) -> list[Any]:
    return list(native.session(model).run(None, feeds))


def _results(module: ir.Module) -> list[ir.Value]:
    body = function(module).regions[0].blocks[0].operations
    return list(body[len(body) - 1].operation.operands)


def _fits(kind: ir.Type, shape: Sequence[int]) -> bool:
    """Say whether a type says nothing wrong of a tensor of ``shape``."""
    if not isinstance(kind, ir.RankedTensorType):
        return True
    return kind.rank == len(shape) and all(
        kind.is_dynamic_dim(dim) or kind.shape[dim] == size for dim, size in enumerate(shape)
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, print what differs, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10000, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="which cases")
    args = parser.parse_args(argv)
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(args.count, args.seed):
            found = difference(case, Path(folder))
            if found is not None:
                print(f"{case}\n    {found}", flush=True)
                differ += 1
    print(f"{args.count} cases, {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())

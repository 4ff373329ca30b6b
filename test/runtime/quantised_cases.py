"""Small models with quantised values that ONNX Runtime rewrites, by name, and their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["BLOCKS", "CASES", "truth"]

Case = tuple[onnx.ModelProto, dict[str, Any]]

RNG = np.random.default_rng(0)
node = helper.make_node

X = RNG.normal(size=(16, 256)).astype(np.float32)
IMAGE = RNG.normal(size=(1, 4, 16, 16)).astype(np.float32)
# The largest magnitudes of 8 bits: sums of two products overflow 16 bits.
MATRIX = RNG.integers(-127, 128, (256, 128)).astype(np.int8)
KERNEL = RNG.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8)
STORED = {
    "s": np.float32(0.03), "z": np.uint8(128), "ws": np.float32(0.01), "wz": np.int8(0),
    "os": np.float32(0.2), "oz": np.uint8(128),
}  # fmt: skip
WEIGHT = node("DequantizeLinear", ["w", "ws", "wz"], ["f"])


def rounded(name: str, source: str, scale: str, zero: str) -> list[onnx.NodeProto]:
    return [node("QuantizeLinear", [source, scale, zero], [f"{name}_q"]),
            node("DequantizeLinear", [f"{name}_q", scale, zero], [name])]  # fmt: skip


def case(nodes: list[onnx.NodeProto], *more: onnx.TensorProto, x: Any = X, **stored: Any) -> Case:
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in {**STORED, **stored}.items()]
    value = helper.make_tensor_value_info
    read = {name for made in nodes for name in made.input}
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, x.shape)],
        [value("y", TensorProto.FLOAT, None)], [t for t in (*held, *more) if t.name in read],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), {"x": x}


def blocks(op_type: str, kind: int, size: int, *, zero: bool = False) -> Case:
    """Weights of 4 or 8 bits with a scale per ``size`` rows, or per column if it is 0."""
    span = {TensorProto.INT4: (-8, 8), TensorProto.UINT4: (0, 16), TensorProto.INT8: (-127, 128)}
    weight = helper.make_tensor("q", kind, [256, 128], RNG.integers(*span[kind], 256 * 128))
    rows = (256 // size, 128) if size else (128,)
    more = [weight]
    if zero:
        more.append(helper.make_tensor("qz", kind, rows, RNG.integers(0, 8, np.prod(rows))))
    reads = ["q", "qs", *(["qz"] if zero else [])]
    held = {"axis": 0, "block_size": size} if size else {"axis": 1}
    nodes = [node("DequantizeLinear", reads, ["f"], **held), node(op_type, ["x", "f"], ["y"])]
    return case(nodes, *more, qs=(RNG.random(rows) * 0.1 + 0.01).astype(np.float32))


ACTIVATION = rounded("a", "x", "s", "z")
RESULT = rounded("y", "m", "os", "oz")
BLOCKS = {
    f"{op_type} of {name} with {'zero points' if zero else f'blocks of {size}'}":
        blocks(op_type, getattr(TensorProto, name), size, zero=zero)
    for op_type in ("MatMul", "Gemm")
    for name, size, zero in (("INT4", 32, False), ("UINT4", 32, False), ("UINT4", 32, True),
                             ("INT4", 0, False), ("INT8", 32, False), ("INT8", 0, False),
                             ("INT8", 0, True))
}  # fmt: skip
"""Only the weights are quantised."""

CASES: dict[str, Case] = {
    **BLOCKS,
    "integers to floats": case([*ACTIVATION, WEIGHT, node("MatMul", ["a", "f"], ["y"])], w=MATRIX),
    "integers to integers":
        case([*ACTIVATION, WEIGHT, node("MatMul", ["a", "f"], ["m"]), *RESULT], w=MATRIX),
    "a bias of floats":
        case([*ACTIVATION, WEIGHT, node("Gemm", ["a", "f", "b"], ["m"]), *RESULT], w=MATRIX,
             b=RNG.normal(size=128).astype(np.float32)),
    "weights of floats":
        case([*ACTIVATION, node("Gemm", ["a", "w", "b"], ["m"]), *RESULT],
             w=RNG.normal(size=(256, 128)).astype(np.float32) * 0.1,
             b=RNG.normal(size=128).astype(np.float32)),
    "a convolution":
        case([*ACTIVATION, WEIGHT, node("Conv", ["a", "f"], ["m"]), *RESULT], w=KERNEL, x=IMAGE),
    "a sum": case([*ACTIVATION, node("Add", ["a", "a"], ["m"]), *RESULT]),
    "a product": case([*ACTIVATION, node("Mul", ["a", "a"], ["m"]), *RESULT]),
    "a mean": case([*ACTIVATION, node("GlobalAveragePool", ["a"], ["m"]), *RESULT], x=IMAGE),
    "two steps": case([*ACTIVATION, *rounded("m", "a", "ws", "oz"), node("Neg", ["m"], ["y"])]),
    "activations rounded as they come":
        case([node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
              node("MatMulInteger", ["q", "w", "qz"], ["i"]),
              node("Cast", ["i"], ["c"], to=TensorProto.FLOAT),
              node("Mul", ["qs", "ws"], ["scale"]),
              node("Mul", ["c", "scale"], ["y"])], w=MATRIX),
}  # fmt: skip


def truth(case: Case) -> Any:
    """What the standard says, in NumPy."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(case[0]).run(None, case[1])[0]

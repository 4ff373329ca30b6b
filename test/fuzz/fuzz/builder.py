"""A random graph under construction: every value is there as an array, and known to be valid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

__all__ = [
    "FLOATS",
    "INTEGERS",
    "Array",
    "Builder",
    "UnsuitableError",
    "Value",
    "bits_of",
    "session_of",
]

Array = npt.NDArray[Any]

FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int64", "int32", "int8", "uint8")

IR_VERSION = 10
_MOST_ELEMENTS = 4096
_MOST = {"float16": 200.0}  # absolute value; else
_MOST_ELSE = 1e4
_MANTISSA = {"float16": 10, "float32": 22, "float64": 50}
_TAKE_ALL = frozenset(
    ("IsNaN", "IsInf", "Exp", "Sigmoid", "Tanh", "Erf", "Relu", "Softmax", "LogSoftmax", "Sqrt",
     "Reciprocal", "Log", "Shape", "Size", "If", "Softplus", "Atan")
)  # fmt: skip
_COMPARE = frozenset(
    ("Max", "Min", "ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "Relu", "Clip",
     "ScatterElements", "ScatterND", "Softmax", "LogSoftmax")
)  # fmt: skip
_FINEST = 6  # binary places of a number that counts as exact


class UnsuitableError(Exception):
    """What was drawn cannot be added here."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph. ``bits``: how many its floats need if they are exact, else ``None``.

    Exact floats are multiples of 2^-6: their sums and products are the same in any order, as long
    as they fit, and what jumps (rounding, comparing, ArgMax) may be used on them.
    """

    name: str
    array: Array = field(repr=False)
    bits: float | None = None
    is_input: bool = False
    is_constant: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> str:
        return str(self.array.dtype)

    @property
    def is_finite(self) -> bool:
        return not self.is_float or bool(np.isfinite(self.array).all())

    @property
    def has_nan(self) -> bool:
        return self.is_float and bool(np.isnan(self.array).any())

    @property
    def is_float(self) -> bool:
        return self.array.dtype.kind == "f"


def bits_of(array: Array) -> float | None:
    """Return the bits of exact numbers, ``None`` where some are not."""
    if array.dtype.kind != "f":
        return 0.0
    if not np.isfinite(array).all():
        return None
    scaled = array.astype(np.float64) * 2**_FINEST
    if (scaled != np.round(scaled)).any():
        return None
    whole = scaled.astype(np.int64)
    shift = 0
    while shift < _FINEST and not (whole & 1).any():
        whole, shift = whole >> 1, shift + 1
    return math.log2(int(np.abs(whole).max(initial=0)) + 1)


class Builder:
    """A graph that grows; ``rng`` decides all that is random about it."""

    def __init__(self, rng: np.random.Generator, opset: int) -> None:
        self.rng, self.opset = rng, opset
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        self.inputs: list[Value] = []
        self.values: list[Value] = []
        self.by_name: dict[str, Value] = {}
        self.domains: set[str] = set()
        self.inexact: set[str] = set()
        self.fixed: set[str] = set()
        self._sizes = [int(n) for n in rng.choice([0, 1, 2, 3, 4, 5, 6, 8, 12], 5,
                       p=[0.02, 0.1, 0.16, 0.14, 0.2, 0.06, 0.12, 0.12, 0.08])]  # fmt: skip

    # What is random.

    def flip(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def integer(self, low: int, high: int) -> int:
        """Return a number from ``low`` to ``high``, both possible."""
        if high < low:
            raise UnsuitableError("no such number")
        return int(self.rng.integers(low, high + 1))

    def choose(self, options: Sequence[Any]) -> Any:
        """Return one of ``options``; there must be some."""
        if not len(options):
            raise UnsuitableError("nothing to choose from")
        return options[self.integer(0, len(options) - 1)]

    def size(self) -> int:
        """Return one of the few sizes that this graph has."""
        return int(self.choose(self._sizes))

    def axis(self, rank: int) -> int:
        """Return an axis of a tensor of ``rank``, often counted from the end."""
        if not rank:
            raise UnsuitableError("a scalar has no axis")
        axis = self.integer(0, rank - 1)
        return axis - rank if self.flip(0.4) else axis

    def subset(self, rank: int, least: int = 0) -> list[int]:
        """Return some of the axes, counted from the start, in order."""
        kept = [axis for axis in range(rank) if self.flip()]
        if len(kept) < least:
            raise UnsuitableError("too few axes")
        return kept

    def last_of(self, x: Value) -> tuple[int, ...]:
        """Return the last few sizes of ``x``, perhaps none or all."""
        return x.shape[self.integer(0, x.rank) :]

    def numbers(self, shape: Sequence[int], dtype: str = "float32", *, exact: bool) -> Array:
        """Return random numbers: small ones that are exact, or normal ones."""
        kind, shape = np.dtype(dtype), tuple(shape)
        if kind.kind == "b":
            return np.asarray(self.rng.integers(0, 2, shape)).astype(bool)
        if kind.kind in "iu":
            low = 0 if kind.kind == "u" else -7
            return np.asarray(self.rng.integers(low, 8, shape)).astype(kind)
        if exact:
            return np.asarray(self.rng.integers(-6, 7, shape) / 2).astype(kind)
        return np.asarray(self.rng.standard_normal(shape)).astype(kind)

    # What is there.

    def pick(self, where: Callable[[Value], bool] = lambda value: True) -> Value:
        """Return a value that ``where`` says yes to, later ones more often."""
        found = [value for value in self.values if where(value)]
        if not found:
            raise UnsuitableError("no such value")
        place = int(len(found) * math.sqrt(self.rng.random()))
        return found[place]

    def float(self, rank: int | None = None, dtype: str | None = None, least: int = 0) -> Value:
        """Return a tensor of floats, of one rank or of at least ``least``."""
        return self.pick(
            lambda v: (
                v.is_float
                and v.rank >= least
                and rank in (None, v.rank)
                and dtype in (None, v.dtype)
            )
        )

    # What is added.

    def input(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        exact: bool = True,
        is_fixed: bool = False,
    ) -> Value:
        """Add an input of the graph; the sizes of a fixed one are never symbolic."""
        array = self.numbers(shape, dtype, exact=exact)
        value = Value(f"x{len(self.inputs)}", array, bits_of(array), is_input=True)
        if is_fixed:
            self.fixed.add(value.name)
        self.inputs.append(value)
        return self._keep(value)

    def weight(self, shape: Sequence[int], dtype: str = "float32", exact: bool = True) -> Value:
        """Return an initializer of random numbers, now and then one that is there already."""
        if self.flip(0.25):
            same = [v for v in self.values if v.is_constant and v.shape == tuple(shape)
                    and v.dtype == dtype and (v.bits is not None or not exact)]  # fmt: skip
            if same:
                return self.choose(same)
        return self.constant(self.numbers(shape, dtype, exact=exact))

    def constant(self, array: Any, *, kept: bool = True) -> Value:
        """Add an initializer, or a Constant; ``kept``: other nodes may use it too."""
        array = np.asarray(array)
        name = f"c{len(self.by_name)}"
        tensor = numpy_helper.from_array(array, name)
        if self.flip(0.2):
            tensor.name = ""
            self.nodes.append(helper.make_node("Constant", [], [name], name, value=tensor))
        else:
            self.stored.append(tensor)
        value = Value(name, array, bits_of(array), is_constant=True)
        return self._keep(value) if kept else self._know(value)

    def numbers_of(self, numbers: Any, dtype: str = "int64") -> Value:
        """Return a constant operand, such as axes or sizes, for this node alone."""
        return self.constant(np.asarray(numbers, dtype), kept=False)

    def add(
        self,
        kind: str,
        *operands: Value | None,
        results: int = 1,
        domain: str = "",
        exact: str = "no",
        captured: Sequence[Value] = (),
        **attributes: Any,
    ) -> list[Value]:
        """Add a node and return its results.

        ``exact`` says what it does to exact numbers: ``move`` keeps them as they are, ``linear``
        adds and multiplies them, ``jump`` needs them to be exact, of ``no`` nothing is known.
        ``captured`` are values that its subgraphs use. Raises UnsuitableError for what ONNX Runtime
        refuses and for results that are too large.
        """
        number = len(self.by_name)
        names = [f"v{number}" if results == 1 else f"v{number}_{i}" for i in range(results)]
        held = {name: value for name, value in attributes.items() if value is not None}
        texts = [value.name if value is not None else "" for value in operands]
        node = helper.make_node(kind, texts, names, f"{kind}_{number}", domain=domain, **held)
        given = [value for value in operands if value is not None]
        given += [value for value in captured if value not in given]
        self._check(kind, exact, given)
        arrays = self._evaluate(node, {value.name: value for value in given})
        found = [self._judged(name, array, exact, given) for name, array in
                 zip(names, arrays, strict=True)]  # fmt: skip
        self.nodes.append(node)
        self.domains.add(domain)
        return [self._keep(value) for value in found]

    def _check(self, kind: str, exact: str, given: Sequence[Value]) -> None:
        if exact == "jump" and any(value.is_float and value.bits is None for value in given):
            raise UnsuitableError("a jump may go either way")
        if exact != "move" and kind not in _TAKE_ALL and not all(v.is_finite for v in given):
            raise UnsuitableError("a partial sum of infinities is no number")
        if kind in _COMPARE and any(value.has_nan for value in given):
            raise UnsuitableError("what is larger depends on the order")

    def _evaluate(self, node: onnx.NodeProto, given: dict[str, Value]) -> list[Array]:
        inputs = [info_of(value.name, value.array) for value in given.values()]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
        graph = helper.make_graph([node], "node", inputs, outputs)
        try:
            session = session_of(self._model(graph, {node.domain}))
            feeds = {name: value.array for name, value in given.items()}
            found = session.run(None, feeds)
        except Exception as error:  # its exceptions share no base class
            raise UnsuitableError(str(error)) from None
        if not all(isinstance(array, np.ndarray) for array in found):
            raise UnsuitableError("a result that is no tensor")
        return list(found)

    def _judged(self, name: str, array: Array, exact: str, given: Sequence[Value]) -> Value:
        """Return the result as a value, if it is of use to other nodes."""
        if array.size > _MOST_ELEMENTS or array.ndim > 6:
            raise UnsuitableError("too large")
        if array.dtype.kind != "f":
            return Value(name, array, 0.0)
        finite = array[np.isfinite(array)]
        if np.abs(finite).max(initial=0) > _MOST.get(str(array.dtype), _MOST_ELSE):
            raise UnsuitableError("too large a number")
        return Value(name, array, self._bits(array, exact, given))

    def _bits(self, array: Array, exact: str, given: Sequence[Value]) -> float | None:
        floats = [value for value in given if value.is_float]
        if exact == "no" or any(value.bits is None for value in floats):
            return None
        if exact == "linear":
            terms = max((value.array.size for value in given), default=1)
            need = sum(value.bits or 0.0 for value in floats) + math.log2(terms + 1)
            if need > _MANTISSA[str(array.dtype)]:
                return None
        return bits_of(array)

    def _model(self, graph: onnx.GraphProto, domains: set[str]) -> bytes:
        return model_of(graph, self.opset, domains).SerializeToString()

    def _know(self, value: Value) -> Value:
        self.by_name[value.name] = value
        if value.is_float and value.bits is None:
            self.inexact.add(value.name)
        return value

    def _keep(self, value: Value) -> Value:
        self.values.append(value)
        return self._know(value)


def model_of(graph: onnx.GraphProto, opset: int, domains: set[str]) -> onnx.ModelProto:
    """Return the model of a graph."""
    others = sorted(domain for domain in domains if domain)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in others)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def info_of(
    name: str, array: Array, dims: Sequence[int | str] | None = None
) -> onnx.ValueInfoProto:
    """Return the declaration of a value; ``dims`` stands in for its shape."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape if dims is None else dims)


def session_of(model: bytes, *, optimised: bool = False) -> Any:
    """Return ONNX Runtime's session of a model."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    # Where its inference is wrong, of pools with `ceil_mode`, it reuses memory of another size.
    options.enable_mem_reuse = False
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

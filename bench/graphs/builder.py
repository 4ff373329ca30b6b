"""Builder of graphs: a layer over onnx.helper with which a model reads like its definition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["IR_VERSION", "OPSET", "Builder"]

OPSET, IR_VERSION = 20, 10
_PAGE_BYTES = 4096
_INTEGERS = {"int8": (-63, 63), "uint8": (0, 255), "int32": (-4096, 4096)}


@dataclass(frozen=True)
class _Weight:
    """A tensor of the data file, and the distribution of its random values.

    Values are normal with variance 1 / ``fan_in``, times ``scale``. Without ``fan_in`` they are
    uniform in [0.5, 1.5], as scales and variances must not vanish. Integers are uniform over their
    whole range; 32-bit integers over the range of a sum of a few products.
    """

    tensor: TensorProto
    shape: tuple[int, ...]
    item_bytes: int
    fan_in: int | None
    scale: float

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.item_bytes

    def values(self, rng: np.random.Generator) -> bytes:
        dtype = helper.tensor_dtype_to_np_dtype(self.tensor.data_type)
        if dtype.kind in "iu":
            low, high = _INTEGERS[dtype.name]
            return bytes(rng.integers(low, high, self.shape, dtype, endpoint=True).tobytes())
        if self.fan_in is None:
            made = rng.uniform(0.5, 1.5, self.shape)
        else:
            made = rng.standard_normal(self.shape) * self.fan_in**-0.5
        return bytes((made * self.scale).astype(dtype).tobytes())


class Builder:
    """A graph under construction, with names as values; nodes and weights are named by scope.

    ``dtype`` is the element type (a NumPy name) of weights, and of constants without an explicit
    type; ``opset`` is the version of the standard operators. ``parameters`` counts the elements of
    all trained weights. A text in a shape is the name of a symbolic dimension.
    """

    def __init__(self, name: str, dtype: str = "float32", opset: int = OPSET) -> None:
        self.name, self.dtype, self.opset, self.parameters = name, dtype, opset, 0
        self._scopes: list[str] = []
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[tuple[object, ...], TensorProto] = {}
        self._weights: dict[str, _Weight] = {}
        self._names: dict[str, int] = {}

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix ``name`` to the names of all nodes created inside."""
        self._scopes.append(name)
        yield
        self._scopes.pop()

    def input(self, name: str, dtype: str, *shape: int | str) -> str:
        """Add an input of the model."""
        self._inputs.append(helper.make_tensor_value_info(name, _element(dtype), shape))
        return name

    def output(self, value: str, name: str, *shape: int | str, dtype: str | None = None) -> None:
        """Make ``value`` an output of the model, called ``name``."""
        with self.scope(name):
            node = helper.make_node("Identity", [value], [name], name=self._path("output"))
        self._nodes.append(node)
        element = _element(dtype or self.dtype)
        self._outputs.append(helper.make_tensor_value_info(name, element, shape))

    def weight(
        self,
        name: str,
        *shape: int,
        fan_in: int | None = None,
        trained: bool = True,
        dtype: str | None = None,
        scale: float = 1.0,
    ) -> str:
        """Add a weight in the data file."""
        path = ".".join([*self._scopes, name])
        assert path not in self._weights, f"{path} is there already"
        tensor = TensorProto(name=path, data_type=_element(dtype or self.dtype), dims=shape)
        item_bytes = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        self._weights[path] = _Weight(tensor, shape, item_bytes, fan_in, scale)
        self.parameters += math.prod(shape) * trained
        return path

    def constant(self, values: object, dtype: str | None = None) -> str:
        """Return a small constant in the model itself; equal constants are shared."""
        array = np.asarray(values, dtype=dtype or self.dtype)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = numpy_helper.from_array(array, name)
        return str(self._constants[key].name)

    def ints(self, *values: int) -> str:
        """Return a vector of int64."""
        return self.constant(values, "int64")

    def op(self, kind: str, *operands: str, name: str = "", **attributes: object) -> str:
        """Add an operator and return its one result; ``name`` is an optional node name."""
        return self.ops(1, kind, *operands, name=name, **attributes)[0]

    def ops(
        self, results: int, kind: str, *operands: str, name: str = "", **attributes: object
    ) -> Sequence[str]:
        """Add an operator of several results and return them."""
        path = self._path(name or kind.lower())
        values = [path] if results == 1 else [f"{path}.{i}" for i in range(results)]
        self._nodes.append(helper.make_node(kind, operands, values, name=path, **attributes))
        return values

    def save(self, folder: Path, seed: int | None = None) -> Path:
        """Write NAME.onnx and NAME.data to ``folder``; return the former.

        Without a ``seed`` the data is a hole of the right size: it takes no space and reads as
        zeros. With a seed, the weights are random.
        """
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / f"{self.name}.data"
        self._write_data(data, seed)
        path = folder / f"{self.name}.onnx"
        path.write_bytes(self._model().SerializeToString(deterministic=True))
        return path

    def _path(self, name: str) -> str:
        path = "/".join([*self._scopes, name])
        number = self._names[path] = self._names.get(path, -1) + 1
        return f"{path}_{number}" if number else path

    def _model(self) -> onnx.ModelProto:
        stored = [*self._constants.values(), *(held.tensor for held in self._weights.values())]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, stored)
        others = sorted({node.domain for node in self._nodes} - {""})
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(d, 1) for d in others)]
        needed = helper.find_min_ir_version_for(opsets[:1])
        version = max(IR_VERSION, needed)
        return helper.make_model(graph, opset_imports=opsets, ir_version=version)

    def _write_data(self, path: Path, seed: int | None) -> None:
        rng, offset = np.random.default_rng(seed), 0
        with path.open("wb") as file:
            for held in self._weights.values():
                _refer(held, path.name, offset)
                if seed is not None:
                    file.seek(offset)
                    file.write(held.values(rng))
                offset += -(-held.nbytes // _PAGE_BYTES) * _PAGE_BYTES
            file.truncate(offset)


def _element(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _refer(held: _Weight, location: str, offset: int) -> None:
    """Store the location of a tensor's bytes in it."""
    held.tensor.data_location = TensorProto.EXTERNAL
    del held.tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", held.nbytes)):
        held.tensor.external_data.add(key=key, value=str(value))

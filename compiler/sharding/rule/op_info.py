"""Op descriptions that sharding rules read: name, shapes, types, attributes, literal operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensoropt.compiler.layout.sizes import Open, Sizes, end_of, mean_of
from tensoropt.compiler.support.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["BodyInfo", "MisfitError", "OpInfo", "Shape", "TensorInfo"]

Shape = tuple[int | None, ...]

# Element types that the collectives accept (runtime/ops/ort/element.hpp).
_MOVABLE = frozenset(
    ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
)


@dataclass(frozen=True)
class TensorInfo:
    """A ranked tensor: its shape (``None`` marks a symbolic dimension) and element type.

    ``assumed`` has an :class:`Open` for each symbolic dimension with a given range of sizes and
    ``None`` for every other dimension. It is empty if no dimension has a range.
    """

    shape: Shape
    dtype: str
    item_bytes: int
    assumed: tuple[Open | None, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_movable(self) -> bool:
        """True if ranks can exchange the tensor, so that its layout can change."""
        return self.dtype in _MOVABLE

    @property
    def sizes(self) -> Sizes:
        """The shape, with symbolic dimensions replaced by their assumed ranges."""
        if not self.assumed:
            return self.shape
        return tuple(
            n if n is not None else a for n, a in zip(self.shape, self.assumed, strict=True)
        )

    @property
    def elements(self) -> int:
        """Number of elements at the mean of all ranges; a dimension without a range counts as 1."""
        return mean_of(self.sizes)

    @property
    def memory_bytes(self) -> int:
        """Size of the tensor at the end of all ranges; a dimension without a range counts as 1."""
        return end_of(self.sizes) * self.item_bytes


class MisfitError(UserError):
    """Operands that violate the ONNX specification, which ONNX does not check for every op.

    ``problem`` describes the violation and the expected operands.
    """

    def __init__(
        self,
        info: OpInfo,
        problem: str = "has inconsistent operands, expected shapes that ONNX allows for it",
    ) -> None:
        shapes = ["none" if o is None else str([*o.shape]) for o in info.operands]
        found = ", ".join(shapes).replace("None", "?")
        super().__init__(f"'{info.name}' {problem}, got shapes: {found}")


@dataclass(frozen=True)
class BodyInfo:
    """A subgraph of an op: its ops in order, and the peak memory of one run.

    ``goes_on`` is true if its first result, the condition of a Loop, is the condition that it
    received, or constant true.
    """

    ops: tuple[OpInfo, ...]
    transient_bytes: int
    goes_on: bool = False


@dataclass(frozen=True)
class OpInfo:
    """Hashable description of one op; equal ops share their rule, strategies, and costs.

    ``name`` is the ONNX operator, prefixed with its domain unless standard (``MatMul``,
    ``com.microsoft.Gelu``); ``version`` is the opset of that domain. ``operands`` and ``results``
    contain ``None`` for omitted values and for values of unknown rank; ``unranked`` is set if any
    rank is unknown. ``literals`` has the value of each operand that is an ``onnx.Constant``, as
    (dtype, shape, bytes); read it with :meth:`literal`.

    ``standard_version`` is the opset of the standard domain, from which rules build other ops.
    ``bodies`` are the subgraphs of If, Loop, and similar ops. If the op is part of a fused pass
    over arrays, ``in_memory`` lists the operands and results that the pass has in memory
    (``one_pass.py``). ``in_place`` lists results that overwrite operands: the result, the
    operand, and the operand with the values that are written (``in_place.py``).
    """

    name: str
    version: int
    operands: tuple[TensorInfo | None, ...]
    results: tuple[TensorInfo | None, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    literals: tuple[tuple[str, tuple[int, ...], bytes] | None, ...] = ()
    unranked: bool = False
    standard_version: int = 0
    bodies: tuple[BodyInfo, ...] = ()
    in_memory: tuple[int, ...] | None = None
    in_place: tuple[tuple[int, int, int], ...] = ()

    def attribute(self, name: str, default: object = None) -> Any:
        """Return the ONNX attribute as int, float, str, bytes or tuple, or ``default``."""
        return dict(self.attributes).get(name, default)

    def literal(self, index: int) -> npt.NDArray[np.generic] | None:
        """Return the value of operand ``index`` if it is a literal constant."""
        import numpy as np

        literal = self.literals[index] if index < len(self.literals) else None
        if literal is None:
            return None
        dtype, shape, data = literal
        return np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape)

    def literal_ints(self, index: int) -> list[int] | None:
        """Return operand ``index`` as a flat list of integers if it is a literal constant."""
        value = self.literal(index)
        return None if value is None else [int(x) for x in value.reshape(-1)]

    def operand(self, index: int) -> TensorInfo | None:
        """Return operand ``index``, or ``None`` if it is absent, omitted, or unranked."""
        return self.operands[index] if index < len(self.operands) else None

    def rank(self, index: int) -> int:
        """Return the rank of operand ``index``, 0 if it is absent, omitted, or unranked."""
        tensor = self.operand(index)
        return 0 if tensor is None else tensor.rank

    def shape(self, index: int) -> Shape:
        """Return the shape of operand ``index``; raise MisfitError if it has none."""
        info = self.operand(index)
        if info is None:
            raise MisfitError(self)
        return info.shape

    def sizes(self, index: int) -> Sizes:
        """Return `shape` with symbolic dimensions replaced by their assumed ranges."""
        info = self.operand(index)
        if info is None:
            raise MisfitError(self)
        return info.sizes

    def result_sizes(self, index: int = 0) -> Sizes:
        """Return `result_shape` with symbolic dimensions replaced by their assumed ranges."""
        info = self.results[index]
        assert info is not None, f"{self.name}: result {index} has no rank"
        return info.sizes

    def result_shape(self, index: int = 0) -> Shape:
        """Return the shape of result ``index``, which must be ranked."""
        info = self.results[index]
        assert info is not None, f"{self.name}: result {index} has no rank"
        return info.shape

    @property
    def inner_bytes(self) -> int:
        """Peak memory of one run of any of its bodies, in bytes."""
        return max((body.transient_bytes for body in self.bodies), default=0)

    @property
    def is_ranked(self) -> bool:
        """True if every operand and result that is present has a known rank."""
        return not self.unranked

"""What a sharding rule may know of an op: names, shapes, types, attributes, literal operands."""

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

# What the collectives take (runtime/ops/ort/element.hpp).
_MOVABLE = frozenset(
    ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
)


@dataclass(frozen=True)
class TensorInfo:
    """A ranked tensor: its shape (``None`` marks a symbolic dimension) and element type.

    ``assumed`` has an :class:`Open` for each symbolic dimension whose sizes were given as a range,
    ``None`` for others; it is empty where there is none.
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
        """Whether ranks can exchange it, so that its layout can change."""
        return self.dtype in _MOVABLE

    @property
    def sizes(self) -> Sizes:
        """The shape, with what is assumed of symbolic dimensions."""
        if not self.assumed:
            return self.shape
        return tuple(
            n if n is not None else a for n, a in zip(self.shape, self.assumed, strict=True)
        )

    @property
    def elements(self) -> int:
        """Number of elements at the mean of all ranges; what has no range counts as 1."""
        return mean_of(self.sizes)

    @property
    def memory_bytes(self) -> int:
        """Size of the tensor at the end of all ranges; what has no range counts as 1."""
        return end_of(self.sizes) * self.item_bytes


class MisfitError(UserError):
    """An op whose operands are not those that ONNX demands, which it does not check of all ops.

    ``problem`` says what is wrong with them and what would be right.
    """

    def __init__(
        self,
        info: OpInfo,
        problem: str = "has operands that do not fit together, expected those of its definition",
    ) -> None:
        shapes = ["none" if o is None else str([*o.shape]) for o in info.operands]
        found = ", ".join(shapes).replace("None", "?")
        super().__init__(f"'{info.name}' {problem}, got shapes: {found}")


@dataclass(frozen=True)
class BodyInfo:
    """A graph inside an op: its ops in order, and the most bytes that one run of it holds at once.

    ``goes_on``: its first result, a Loop's condition, is the one that it was given, or true.
    """

    ops: tuple[OpInfo, ...]
    transient_bytes: int
    goes_on: bool = False


@dataclass(frozen=True)
class OpInfo:
    """One op, hashable, so that equal ops share their rule, strategies and costs.

    ``name`` is the ONNX operator, with its domain in front unless standard (``MatMul``,
    ``com.microsoft.Gelu``); ``version`` the opset of that domain. ``operands`` and ``results`` hold
    ``None`` where one is omitted or of unknown rank; ``unranked`` says whether there is one of the
    latter. ``literals`` holds the value of each operand that is an ``onnx.Constant``, as (dtype,
    shape, bytes); read it with :meth:`literal`.
    ``standard_version`` is the opset of the standard domain, of which rules build other ops.
    ``bodies`` are the graphs of an If, a Loop or the like. ``in_memory`` says of an op that is part
    of one pass over arrays which operands and results the pass has in memory (``one_pass.py``).
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

    def attribute(self, name: str, default: object = None) -> Any:
        """Return the ONNX attribute as int, float, str, bytes or tuple, or ``default``."""
        return dict(self.attributes).get(name, default)

    def literal(self, index: int) -> npt.NDArray[np.generic] | None:
        """Return the value of operand ``index`` if it is a literal constant."""
        import numpy as np

        held = self.literals[index] if index < len(self.literals) else None
        if held is None:
            return None
        dtype, shape, data = held
        return np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape)

    def literal_ints(self, index: int) -> list[int] | None:
        """Return operand ``index`` as a flat list of integers if it is a literal constant."""
        value = self.literal(index)
        return None if value is None else [int(x) for x in value.reshape(-1)]

    def operand(self, index: int) -> TensorInfo | None:
        """Return operand ``index``, or ``None`` where it is absent, omitted or unranked."""
        return self.operands[index] if index < len(self.operands) else None

    def shape(self, index: int) -> Shape:
        """Return the shape of operand ``index``; raises MisfitError where there is none."""
        info = self.operand(index)
        if info is None:
            raise MisfitError(self)
        return info.shape

    def sizes(self, index: int) -> Sizes:
        """Return `shape` with what is assumed of symbolic dimensions."""
        info = self.operand(index)
        if info is None:
            raise MisfitError(self)
        return info.sizes

    def result_sizes(self, index: int = 0) -> Sizes:
        """Return `result_shape` with what is assumed of symbolic dimensions."""
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
        """The most bytes that a run of one of its bodies holds at once."""
        return max((body.transient_bytes for body in self.bodies), default=0)

    @property
    def is_ranked(self) -> bool:
        """Whether every operand and result that is present has a known rank."""
        return not self.unranked

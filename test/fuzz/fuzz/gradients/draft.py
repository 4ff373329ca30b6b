"""A graph that is being drawn: its values are known in PyTorch, so that nodes can suit them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fuzz.gradients.graph import Array, Graph, Node, replay, tensor_of

__all__ = ["MAKERS", "Draft", "UnfitError", "Value", "maker"]

_MOST_ELEMENTS, _LARGEST, _MOST_RANK = 600, 40.0, 5
_SIZES, _CHANCES = (0, 1, 2, 3, 4, 5, 7), (0.01, 0.19, 0.25, 0.25, 0.15, 0.1, 0.05)


class UnfitError(Exception):
    """What was drawn does not suit the values that there are: draw again."""


@dataclass(frozen=True)
class Value:
    """A value of the graph: its name and what it is for the drawn leaves."""

    name: str
    tensor: Any

    @property
    def shape(self) -> list[int]:
        return list(self.tensor.shape)

    @property
    def rank(self) -> int:
        return int(self.tensor.ndim)

    @property
    def size(self) -> int:
        return int(self.tensor.numel())


Maker = Callable[["Draft"], None]
MAKERS: list[tuple[Maker, float, int, bool]] = []
"""What adds nodes, with how often, from which opset on, and whether in float32 alone."""


def maker(
    weight: float = 1.0, *, since: int = 20, narrow: bool = False
) -> Callable[[Maker], Maker]:
    """Register what adds a node (and what it reads) to a draft; it may raise `UnfitError`.

    ``narrow`` says that ONNX Runtime has no kernels in float64 for it.
    """

    def register(function: Maker) -> Maker:
        MAKERS.append((function, weight, since, narrow))
        return function

    return register


class Draft:
    """A graph of floating point type ``dtype``, drawn from ``rng``."""

    def __init__(self, rng: np.random.Generator, opset: int, dtype: str) -> None:
        self.rng, self.opset, self.dtype = rng, opset, dtype
        self.nodes: list[Node] = []
        self.inputs: dict[str, Array] = {}
        self.weights: dict[str, Array] = {}
        self.literals: dict[str, Array] = {}
        self.values: dict[str, Value] = {}
        self.used: set[str] = set()
        self.foreign: set[str] = set()  # values of another type, which other nodes do not read
        self.counts: dict[str, int] = {}

    # What is drawn.

    def chance(self, probability: float) -> bool:
        """Return True so often."""
        return bool(self.rng.random() < probability)

    def choice(self, options: Sequence[Any]) -> Any:
        """Return one of ``options``."""
        if not len(options):
            raise UnfitError
        return options[int(self.rng.integers(len(options)))]

    def whole(self, low: int, high: int) -> int:
        """Return a number from ``low`` to ``high``, both possible."""
        if high < low:
            raise UnfitError
        return int(self.rng.integers(low, high + 1))

    def number(self, low: float, high: float) -> float:
        """Return a number, exact in float32: attributes have that type."""
        return float(np.float32(self.rng.uniform(low, high)))

    def size(self) -> int:
        """Return the size of a dimension."""
        return int(self.rng.choice(_SIZES, p=_CHANCES))

    def shape(self, rank: int) -> list[int]:
        """Return sizes of ``rank`` dimensions."""
        return [self.size() for _ in range(rank)]

    def axis(self, rank: int) -> int:
        """Return an axis, counted from the end or not."""
        if rank == 0:
            raise UnfitError
        return self.whole(-rank, rank - 1)

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Return some axes, in random order, counted from the end or not."""
        count = self.whole(min(least, rank), rank)
        dims = self.rng.permutation(rank)[:count]
        return [int(d) - rank if self.chance(0.4) else int(d) for d in dims]

    def signed(self, axis: int, rank: int) -> int:
        """Return ``axis`` counted from the end, or as it is."""
        return axis - rank if self.chance(0.4) else axis

    # Leaves.

    def name(self, prefix: str) -> str:
        """Return a new name."""
        self.counts[prefix] = self.counts.get(prefix, 0) + 1
        return f"{prefix}{self.counts[prefix]}"

    def leaf(self, table: dict[str, Array], prefix: str, array: Array) -> Value:
        """Add an array to one of the tables of leaves."""
        if array.size > _MOST_ELEMENTS:
            raise UnfitError
        name = self.name(prefix)
        table[name] = array
        self.values[name] = Value(name, tensor_of(array, torch.float64))
        return self.values[name]

    def weight(self, shape: Sequence[int], low: float = -1.5, high: float = 1.5) -> Value:
        """Return a weight, an old one of that shape or a new one; scalars are made of vectors."""
        if not len(shape):
            return self.scalar(low, high)
        old = [self.values[n] for n, a in self.weights.items() if list(a.shape) == list(shape)]
        fits = [v for v in old if v.tensor.is_floating_point() and inside(v, low, high)]
        if fits and self.chance(0.4):
            return self.choice(fits)  # type: ignore[no-any-return]
        array = self.rng.uniform(low, high, shape).astype(self.dtype)
        return self.leaf(self.weights, "w", array)

    def scalar(self, low: float = -1.5, high: float = 1.5) -> Value:
        """Return a value without dimensions, made of a weight; a weight itself would be fixed."""
        return self.add("Squeeze", [self.weight([1], low, high)], lambda x: x.reshape(()))

    def data(self, shape: Sequence[int]) -> Value:
        """Return a new floating point input."""
        return self.leaf(self.inputs, "x", self.rng.standard_normal(shape).astype(self.dtype))

    def ints(self, array: Any, dtype: Any = np.int64) -> Value:
        """Return whole numbers that the model knows: an initializer or a Constant."""
        table = self.literals if self.chance(0.5) else self.weights
        return self.leaf(table, "i", np.array(array, dtype))

    def places(self, array: Any) -> Value:
        """Return indices, which may be an input of the model."""
        held = np.array(array, np.int32 if self.chance(0.2) else np.int64)
        if self.chance(0.3):
            return self.leaf(self.inputs, "i", held)
        return self.ints(held, held.dtype)

    def fixed(self, value: float) -> Value:
        """Return a number that the model knows."""
        return self.leaf(self.literals, "c", np.array(value, self.dtype))

    # Values.

    def floats(self) -> list[Value]:
        """Return all floating point values but literals."""
        hidden = self.foreign | self.literals.keys()
        held = self.values.values()
        return [v for v in held if v.tensor.is_floating_point() and v.name not in hidden]

    def pick(
        self, ranks: Sequence[int] = range(_MOST_RANK), fits: Callable[[Value], bool] | None = None
    ) -> Value:
        """Return a value of one of ``ranks``, a new weight if there is none."""
        found = [v for v in self.floats() if v.rank in ranks and v.size <= _MOST_ELEMENTS]
        found = [v for v in found if fits is None or fits(v)]
        fresh = [v for v in found if v.name not in self.used]
        if fresh and self.chance(0.5):
            return self.choice(fresh)  # type: ignore[no-any-return]
        if found and self.chance(0.9):
            return self.choice(found)  # type: ignore[no-any-return]
        if fits is not None and not found:
            raise UnfitError
        return self.choice(found) if found else self.weight(self.shape(self.choice(list(ranks))))

    def like(self, shape: Sequence[int]) -> Value:
        """Return a value of ``shape``, a weight if there is none."""
        return self.pick_shape(shape) or self.weight(shape)

    def pick_shape(self, shape: Sequence[int]) -> Value | None:
        """Return a value of ``shape`` that is there, often ``None``."""
        found = [v for v in self.floats() if v.shape == list(shape)]
        return self.choice(found) if found and self.chance(0.6) else None

    def beside(self, x: Value, *, stretch: bool = True) -> Value:
        """Return a value that broadcasts with ``x``; with ``stretch`` the result may be larger."""
        others = [v for v in self.floats() if _broadcasts(v.shape, x.shape, stretch)]
        if others and self.chance(0.5):
            return self.choice(others)  # type: ignore[no-any-return]
        shape = [1 if self.chance(0.3) else n for n in x.shape]
        if stretch:
            shape = [self.size() if n == 1 and self.chance(0.3) else n for n in shape]
        cut = self.whole(0, len(shape)) if self.chance(0.3) else 0
        extra = (
            [self.whole(1, 3)]
            if stretch and not cut and len(shape) < 4 and self.chance(0.1)
            else []
        )
        return self.weight([*extra, *shape[cut:]])

    def within(self, low: float, high: float, x: Value | None = None) -> Value:
        """Return a value between ``low`` and ``high``, pressed into it if need be."""
        x = self.pick() if x is None else x
        if inside(x, low, high):
            return x
        pressed = self.add("Sigmoid", [x], torch.sigmoid)
        span, start = self.fixed(high - low), self.fixed(low)
        pressed = self.add("Mul", [pressed, span], torch.mul)
        return self.add("Add", [start, pressed], torch.add)

    def add(
        self,
        op_type: str,
        operands: Sequence[Value | None],
        function: Callable[..., Any],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        captured: Sequence[Value] = (),
        refused: bool = False,
    ) -> Any:
        """Add a node; return its result. Raises `UnfitError` for what is large, or no number."""
        return self.add_many(
            op_type, operands, function, attributes, domain=domain, captured=captured,
            refused=refused,
        )[0]  # fmt: skip

    def add_many(
        self,
        op_type: str,
        operands: Sequence[Value | None],
        function: Callable[..., Any],
        attributes: Mapping[str, Any] | None = None,
        *,
        there: Sequence[bool] = (True,),
        domain: str = "",
        captured: Sequence[Value] = (),
        refused: bool = False,
    ) -> list[Any]:
        """Add a node whose results are ``there`` or not; ``None`` for one that is not."""
        names = tuple("" if v is None else v.name for v in operands)
        results = tuple(self.name("v") if here else "" for here in there)
        held = dict(attributes or {})
        inner = tuple(v.name for v in captured)
        node = Node(op_type, names, results, function, held, domain, inner, refused)
        values = {n: self.values[n].tensor for n in node.reads if n}
        replay([node], values)
        made = [Value(n, values[n]) if n else None for n in results]
        for value in filter(None, made):
            _check(value.tensor)
        self.nodes.append(node)
        self.used.update(node.reads)
        self.values.update((v.name, v) for v in made if v is not None)
        return made

    def mark(self) -> tuple[Any, ...]:
        """Return what :meth:`reset` takes back to."""
        tables = (self.inputs, self.weights, self.literals, self.values)
        return len(self.nodes), [set(t) for t in tables], set(self.used)

    def reset(self, mark: tuple[Any, ...]) -> None:
        """Forget all that was added since ``mark``."""
        count, tables, self.used = mark
        del self.nodes[count:]
        for table, kept in zip(
            (self.inputs, self.weights, self.literals, self.values), tables, strict=True
        ):
            for name in [name for name in table if name not in kept]:  # type: ignore[attr-defined]
                del table[name]  # type: ignore[attr-defined]

    def graph(self, loss: str, outputs: Sequence[str]) -> Graph:
        """Return the graph that was drawn."""
        return Graph(
            self.opset, self.dtype, tuple(self.nodes), dict(self.inputs), dict(self.weights),
            dict(self.literals), loss, tuple(outputs),
        )  # fmt: skip


def inside(x: Value, low: float, high: float) -> bool:
    """Say whether all elements of ``x`` lie there."""
    return bool(((x.tensor >= low) & (x.tensor <= high)).all())


def away(tensor: Any, *points: float, by: float = 1e-3) -> None:
    """Raise `UnfitError` where an element is near one of ``points``, and not that point itself."""
    for point in points:
        distance = (tensor - point).abs()
        if bool(((distance < by) & (distance > 0)).any()):
            raise UnfitError


def distinct(tensor: Any, by: float = 1e-3) -> None:
    """Raise `UnfitError` where two elements are close."""
    held = tensor.reshape(-1).sort().values
    if bool((held.diff() < by).any()):
        raise UnfitError


def _broadcasts(a: Sequence[int], b: Sequence[int], stretch: bool) -> bool:
    try:
        whole = list(np.broadcast_shapes(tuple(a), tuple(b)))
    except ValueError:
        return False
    return whole == list(b) or (stretch and math.prod(whole) <= _MOST_ELEMENTS)


def _check(tensor: Any) -> None:
    if tensor.numel() > _MOST_ELEMENTS or tensor.ndim > _MOST_RANK:
        raise UnfitError
    if not tensor.is_floating_point():
        return
    if not bool(torch.isfinite(tensor).all()) or bool((tensor.abs() > _LARGEST).any()):
        raise UnfitError

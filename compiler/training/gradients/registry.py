"""The gradients by operator name: what a rule gets, what it returns, and where rules are kept.

A rule builds, in standard ONNX operators, the vector-Jacobian product of one op: from the gradients
of its results those of its operands. All shapes are static, the opset is ``TRAINING_OPSET`` or
later, and ops are built at the end of `@main`, so that whatever the forward graph made can be read.

There are three ways to teach an operator:

- ``@gradient("Relu")``: the forward op stays as it is; the function returns the gradients.
- ``@forward_form("BatchNormalization")`` beside a gradient: training runs other ops in place of the
  op (statistics of the batch), and hands values on to the gradient in ``Forward.kept``.
- ``@decomposition("LSTM")``: training runs other ops, each with a gradient of its own.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx
from tensoropt.dialects.build import Build, broadcast, shape_of, sizes_of
from tensoropt.dialects.mlir import ir

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "TRAINING_OPSET",
    "Backward",
    "FormMaker",
    "ForwardOp",
    "Gradients",
    "decomposition",
    "decomposition_of",
    "forward_form",
    "forward_form_of",
    "gradient",
    "gradient_of",
    "registered",
]

TRAINING_OPSET = 20
"""The least version of the standard operators that gradients are written for."""

Gradients = Sequence[ir.Value | None]
"""Per operand its gradient (``ir.Value`` of the operand's type), ``None`` where it has none: an
operand that nothing wants, an integer, one that was omitted, or one that only places others."""

_FAMILIES = (
    "activations",
    "attention",
    "convolution",
    "cutting",
    "dropout",
    "elementwise",
    "functions",
    "gelu",
    "indexing",
    "layer_normalization",
    "linear_algebra",
    "losses",
    "movement",
    "normalization",
    "pooling",
    "recurrent",
    "reduction",
    "resizing",
    "runtime_attention",
    "softmax",
)


@dataclass
class ForwardOp:
    """One op of the forward graph, about to be built in its training form.

    ``operands`` are its operands; ``make`` builds at the place of the op. What is put into ``kept``
    by name is handed on to the gradient (as :meth:`Backward.kept`). ``training`` is what the whole
    step has to offer: the seed, the buffers (running statistics) and their new values.
    """

    op: ir.Operation
    info: OpInfo
    operands: list[ir.Value]
    make: Build
    training: Training
    kept: dict[str, ir.Value] = field(default_factory=dict)

    def has(self, index: int) -> bool:
        """Say whether operand ``index`` is there (not omitted)."""
        return index < len(self.operands) and not onnx.is_no_value(self.operands[index])

    def gives(self, index: int) -> bool:
        """Say whether result ``index`` is there (not omitted)."""
        return index < len(self.op.results) and not onnx.is_no_value(self.op.results[index])

    def check_unused(self, indices: Sequence[int]) -> None:
        """Raise the error about the first of results ``indices`` that is there."""
        for index in filter(self.gives, indices):
            raise self.refused(f"expected its {_result_name(self.info, index)} to be unused")

    def refused(self, text: str) -> UserError:
        """Return the error about a form of the operator that has no gradient."""
        name = onnx.node_name(self.op) or self.op.name
        return UserError(f"node '{name}' ({self.info.name}) has no gradient: {text}")


@dataclass
class Training:
    """What forms of the forward ops may use of the step around them.

    ``seed`` returns the int64 scalar input of a step, another one in every step. ``update`` gives
    the buffer (an argument of ``@main``, such as a running mean) the value it has after the step.
    ``number`` returns another number each time, for what draws random numbers of its own.
    """

    seed: Callable[[], ir.Value]
    update: Callable[[ir.Value, ir.Value], None]
    number: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)


@dataclass
class Backward:
    """One op of the forward graph whose gradients are asked for.

    ``given`` holds, per result, its gradient, ``None`` where nothing depends on it; at least one is
    there, and of those behind the first a rule must ask for each that is, by :meth:`gradient`.
    ``wanted`` says which operands need one: work for others is wasted. ``read`` returns a value of
    the forward graph for use here: the value itself, or one computed anew where activations are
    recomputed; only what is asked for is kept until the backward pass.
    """

    info: OpInfo
    make: Build
    operands: list[ir.Value]
    results: list[ir.Value | None]
    given: list[ir.Value | None]
    wanted: list[bool]
    read: Callable[[ir.Value], ir.Value]
    held: dict[str, ir.Value] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set, init=False)

    def operand(self, index: int) -> ir.Value:
        """Return operand ``index`` as the forward op read it."""
        return self.read(self.operands[index])

    def has(self, index: int) -> bool:
        """Say whether operand ``index`` is there (not omitted)."""
        return index < len(self.operands) and not onnx.is_no_value(self.operands[index])

    def result(self, index: int = 0) -> ir.Value:
        """Return result ``index`` of the forward op."""
        value = self.results[index]
        assert value is not None, f"{self.info.name}: result {index} is not used"
        return self.read(value)

    def shape(self, index: int) -> list[int]:
        """Return the shape of operand ``index``, which keeps nothing."""
        return sizes_of(self.operands[index])

    def first(self, *found: ir.Value | None) -> Gradients:
        """Return ``found`` for the first operands and nothing for the others."""
        return [*found, *[None] * (len(self.operands) - len(found))]

    def kept(self, name: str) -> ir.Value:
        """Return what the training form of the op kept under ``name``."""
        return self.read(self.held[name])

    def gradient(self, index: int = 0) -> ir.Value | None:
        """Return the gradient of result ``index``, ``None`` where nothing depends on it."""
        self.asked.add(index)
        return self.given[index] if index < len(self.given) else None

    @property
    def dy(self) -> ir.Value:
        """The gradient of the first result, which must be there."""
        dy = self.gradient()
        if dy is None:
            self.check_asked()
        assert dy is not None, f"{self.info.name}: nothing depends on the first result"
        return dy

    def check_asked(self) -> None:
        """Raise UserError for a result behind the first whose gradient was not asked for."""
        for index, dy in enumerate(self.given):
            if index and dy is not None and index not in self.asked:
                name = _result_name(self.info, index)
                raise self.refused(f"the loss depends on its {name}")

    def refused(self, text: str) -> UserError:
        """Return the error about a form of the operator that has no gradient."""
        name = str(getattr(self.make, "name", "")).removesuffix(".grad")
        return UserError(f"node '{name}' ({self.info.name}) has no gradient: {text}")

    def literal(self, index: int) -> npt.NDArray[np.generic] | None:
        """Return the array of operand ``index`` if it is a literal, else ``None``."""
        return self.info.literal(index)

    def reduced(self, x: ir.Value, operand: int) -> ir.Value:
        """Return ``x`` summed over what operand ``operand`` was broadcast along: its gradient."""
        return unbroadcast(self.make, x, shape_of(self.operands[operand]))


def _result_name(info: OpInfo, index: int) -> str:
    """Return `output 1 (Mean)`, the names being those of the operator's schema."""
    domain, _, op_type = info.name.rpartition(".")
    schema = onnx.schema(domain, op_type, info.version)
    names = schema.outputs if schema is not None else ()
    return f"output {index} ({names[index]})" if index < len(names) else f"output {index}"


def unbroadcast(make: Build, x: ir.Value, shape: Sequence[int | None]) -> ir.Value:
    """Return ``x`` summed to ``shape``, from which it was broadcast."""
    held = shape_of(x)
    assert broadcast(held, shape) == held, f"{held} is not broadcast from {shape}"
    extra = len(held) - len(shape)
    stretched = [d for d in range(extra, len(held)) if shape[d - extra] == 1 and held[d] != 1]
    dims = [*range(extra), *stretched]
    if not dims:
        return x
    if not stretched:
        return make.reduce("ReduceSum", x, dims, keepdims=False)
    x = make.reduce("ReduceSum", x, dims)
    return make.squeeze(x, range(extra)) if extra else x


GradientMaker = Callable[[Backward], Gradients]
FormMaker = Callable[[ForwardOp], Sequence[ir.Value | None]]

_Maker = TypeVar("_Maker")

_GRADIENTS: dict[str, GradientMaker] = {}
_FORMS: dict[str, FormMaker] = {}
_DECOMPOSITIONS: dict[str, FormMaker] = {}


def gradient(*names: str) -> Callable[[GradientMaker], GradientMaker]:
    """Register the decorated function as the gradient of the operators ``names``."""
    return _registering(_GRADIENTS, names)


def forward_form(*names: str) -> Callable[[FormMaker], FormMaker]:
    """Register what training runs for ``names``; it returns one value per result of the op.

    ``None`` stands for a result that is not used.
    """
    return _registering(_FORMS, names)


def decomposition(*names: str) -> Callable[[FormMaker], FormMaker]:
    """Register what training runs for ``names``: ops that have gradients of their own."""
    return _registering(_DECOMPOSITIONS, names)


def _registering(table: dict[str, _Maker], names: Sequence[str]) -> Callable[[_Maker], _Maker]:
    def register(maker: _Maker) -> _Maker:
        for name in names:
            assert name not in table, f"{name} is registered already"
            table[name] = maker
        return maker

    return register


def gradient_of(name: str) -> GradientMaker | None:
    """Return the gradient of operator ``name`` (``MatMul``, ``com.microsoft.Gelu``)."""
    _load_families()
    return _GRADIENTS.get(name)


def forward_form_of(name: str) -> FormMaker | None:
    """Return what training runs in place of ``name``, if it has a gradient of its own."""
    _load_families()
    return _FORMS.get(name)


def decomposition_of(name: str) -> FormMaker | None:
    """Return what training runs in place of ``name``, op by op differentiable."""
    _load_families()
    return _DECOMPOSITIONS.get(name)


def registered() -> list[str]:
    """Return the names of all operators that can be differentiated, sorted."""
    _load_families()
    return sorted({*_GRADIENTS, *_DECOMPOSITIONS})


@cache
def _load_families() -> None:
    for family in _FAMILIES:
        importlib.import_module(f"tensoropt.compiler.training.gradients.{family}")

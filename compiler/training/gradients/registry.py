"""Registry of gradients by operator name, and the interface of gradient rules.

A rule builds the vector-Jacobian product of one op from standard ONNX operators: it maps the
gradients of the op's results to gradients of its operands. All shapes are static, the opset is
``TRAINING_OPSET`` or later, and ops are built at the end of `@main`, where every value of the
forward graph can be read.

An operator is supported in one of three ways:

- ``@gradient("Relu")``: the forward op is left unchanged; the function returns the gradients.
- ``@forward_form("BatchNormalization")`` together with a gradient: training runs other ops instead
  of the op (statistics of the batch), and saves values for the gradient in ``ForwardOp.saved``.
- ``@decomposition("LSTM")``: training runs other ops, and each has its own gradient.
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

    from tensoropt.compiler.training.gradients.kernel_attention import AttentionKernels

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
"""The lowest version of the standard operators that gradients support."""

Gradients = Sequence[ir.Value | None]
"""The gradient of each operand (``ir.Value`` of the operand's type), ``None`` if it has none.

An operand has no gradient if none is wanted, if it is an integer or was omitted, or if it only
selects positions.
"""

_FAMILIES = (
    "activations",
    "attention",
    "blocked_attention",
    "convolution",
    "dropout",
    "elementwise",
    "experts",
    "functions",
    "fused_attention",
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
    "slicing",
    "softmax",
)


@dataclass
class ForwardOp:
    """An op of the forward graph, about to be built in its training form.

    ``make`` builds ops at the op's position. Values put into ``saved`` are available to the
    gradient (:meth:`Backward.saved`). ``training`` provides the step's seed and the update of
    buffers (running statistics). The first op that is not a literal leads the others, unless the
    form sets another ``leader``.
    """

    op: ir.Operation
    info: OpInfo
    operands: list[ir.Value]
    make: Build
    training: Training
    saved: dict[str, ir.Value] = field(default_factory=dict)
    leader: ir.Operation | None = None

    def has(self, index: int) -> bool:
        """Return whether operand ``index`` is present (not omitted)."""
        return index < len(self.operands) and not onnx.is_no_value(self.operands[index])

    def has_result(self, index: int) -> bool:
        """Return whether result ``index`` is present (not omitted)."""
        return index < len(self.op.results) and not onnx.is_no_value(self.op.results[index])

    def check_unused(self, indices: Sequence[int]) -> None:
        """Raise UserError for the first of results ``indices`` that is present."""
        for index in filter(self.has_result, indices):
            raise self.unsupported(f"expected its {_result_name(self.info, index)} to be unused")

    def unsupported(self, text: str) -> UserError:
        """Return the error for a form of the operator that has no gradient."""
        name = onnx.node_name(self.op) or self.op.name
        return UserError(f"node '{name}' ({self.info.name}) has no gradient: {text}")


@dataclass
class Training:
    """The parts of the step that training forms of forward ops can use.

    ``seed`` returns the int64 scalar input of the step, which differs in every step. ``update``
    sets the value that a buffer (an argument of ``@main``, such as a running mean) has after the
    step. ``number`` returns a new number each time, to seed random numbers of an op. Ranks have
    the ``kernels`` of `tensoropt.Attention`, or none.
    """

    seed: Callable[[], ir.Value]
    update: Callable[[ir.Value, ir.Value], None]
    number: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)
    kernels: AttentionKernels | None = None


@dataclass
class Backward:
    """An op of the forward graph during the backward pass.

    ``given`` is the gradient of each result, ``None`` if nothing depends on it. At least one
    gradient is present, and a rule must request every present gradient after the first by
    :meth:`gradient`. ``wanted`` marks the operands that need a gradient: work for other operands is
    wasted. Only values that the ops of the rule read stay live until the backward pass.
    """

    info: OpInfo
    make: Build
    operands: list[ir.Value]
    results: list[ir.Value | None]
    given: list[ir.Value | None]
    wanted: list[bool]
    saved_values: dict[str, ir.Value] = field(default_factory=dict)
    requested: set[int] = field(default_factory=set, init=False)

    def operand(self, index: int) -> ir.Value:
        """Return operand ``index`` as the forward op read it."""
        return self.operands[index]

    def has(self, index: int) -> bool:
        """Return whether operand ``index`` is present (not omitted)."""
        return index < len(self.operands) and not onnx.is_no_value(self.operands[index])

    def result(self, index: int = 0) -> ir.Value:
        """Return result ``index`` of the forward op."""
        value = self.results[index]
        assert value is not None, f"{self.info.name}: result {index} is not used"
        return value

    def shape(self, index: int) -> list[int]:
        """Return the shape of operand ``index``, without extending its live range."""
        return sizes_of(self.operands[index])

    def first(self, *found: ir.Value | None) -> Gradients:
        """Return ``found`` as the gradients of the first operands, and None for all others."""
        return [*found, *[None] * (len(self.operands) - len(found))]

    def saved(self, name: str) -> ir.Value:
        """Return the value that the training form of the op saved under ``name``."""
        return self.saved_values[name]

    def gradient(self, index: int = 0) -> ir.Value | None:
        """Return the gradient of result ``index``, or ``None`` if nothing depends on it."""
        self.requested.add(index)
        return self.given[index] if index < len(self.given) else None

    @property
    def dy(self) -> ir.Value:
        """The gradient of the first result, which must be present."""
        dy = self.gradient()
        if dy is None:
            self.check_requested()
        assert dy is not None, f"{self.info.name}: nothing depends on the first result"
        return dy

    def check_requested(self) -> None:
        """Raise UserError for a result after the first with a gradient that was not requested."""
        for index, dy in enumerate(self.given):
            if index and dy is not None and index not in self.requested:
                name = _result_name(self.info, index)
                raise self.unsupported(f"the loss depends on its {name}")

    def unsupported(self, text: str) -> UserError:
        """Return the error for a form of the operator that has no gradient."""
        name = str(getattr(self.make, "name", "")).removesuffix(".grad")
        return UserError(f"node '{name}' ({self.info.name}) has no gradient: {text}")

    def literal(self, index: int) -> npt.NDArray[np.generic] | None:
        """Return the array of operand ``index`` if it is a literal, else ``None``."""
        return self.info.literal(index)

    def unbroadcast(self, x: ir.Value, operand: int) -> ir.Value:
        """Return ``x`` summed over the dimensions that ``operand`` was broadcast along."""
        return unbroadcast(self.make, x, shape_of(self.operands[operand]))


def _result_name(info: OpInfo, index: int) -> str:
    """Return the name of a result, such as `output 1 (Mean)`, from the operator's schema."""
    domain, _, op_type = info.name.rpartition(".")
    schema = onnx.schema(domain, op_type, info.version)
    names = schema.outputs if schema is not None else ()
    return f"output {index} ({names[index]})" if index < len(names) else f"output {index}"


def unbroadcast(make: Build, x: ir.Value, shape: Sequence[int | None]) -> ir.Value:
    """Return ``x`` summed to ``shape``, which broadcasts to the shape of ``x``."""
    wide = shape_of(x)
    assert broadcast(wide, shape) == wide, f"{wide} is not broadcast from {shape}"
    extra = len(wide) - len(shape)
    stretched = [d for d in range(extra, len(wide)) if shape[d - extra] == 1 and wide[d] != 1]
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
    return _register(_GRADIENTS, names)


def forward_form(*names: str) -> Callable[[FormMaker], FormMaker]:
    """Register the training form of ``names``; the function returns one value per result of the op.

    ``None`` stands for an unused result.
    """
    return _register(_FORMS, names)


def decomposition(*names: str) -> Callable[[FormMaker], FormMaker]:
    """Register a training form of ``names`` built from ops that each have a gradient."""
    return _register(_DECOMPOSITIONS, names)


def _register(table: dict[str, _Maker], names: Sequence[str]) -> Callable[[_Maker], _Maker]:
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
    """Return the training form of ``name``, if it has one with a gradient."""
    _load_families()
    return _FORMS.get(name)


def decomposition_of(name: str) -> FormMaker | None:
    """Return the training form of ``name`` built from ops that each have a gradient, if any."""
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

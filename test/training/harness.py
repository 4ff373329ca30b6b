"""Gradients against finite differences and against PyTorch: what every test of a gradient uses.

Most tests are one call. ``check_node`` takes the operands of one operator as arrays, and compares
the gradients of all floating point operands that are no literals::

    check_node("Gemm", [normal(3, 4), normal(4, 5), normal(5)], {"alpha": 0.5},
               torch=lambda a, b, c: 0.5 * a @ b + c)
    check_node("ReduceSum", [normal(2, 3), ints(1)], {"keepdims": 0}, literals={1})

- Operands are float64 arrays (``normal``, ``spaced``) unless a test is about another type; where
  ONNX Runtime has no kernel in float64, the check is repeated in float32, with wider bounds.
- ``literals`` are the indices of operands that the model holds as constants; integers that are no
  literal are inputs without a gradient. ``None`` omits an operand.
- ``torch`` is the same function of the same operands (``None`` and literals included, arrays as
  tensors); it may return a tuple, one tensor per result that is there.
- ``outputs`` says how many results the node has, or which are there: ``(True, False, True)``.
- ``cotangents`` names the outputs (``y0``) that get a gradient; all floating point ones otherwise.
- ``same_forward=False`` for an operator whose training form computes something else than the
  operator does at inference (BatchNormalization, Dropout).

``check_model`` is the same for a whole ``onnx.ModelProto`` (``node_model``, or one of your own; its
graph inputs are differentiated, ``wanted`` names some of them, or weights that are no literals).

To look closer, ``Vjp(model)`` is the function (inputs, one cotangent per output) -> (outputs,
gradients) itself: ``vjp.run(feeds, cotangents)`` gives a ``Run`` with ``outputs``, ``gradients``,
``buffers`` (new values of running statistics, by the name of the buffer); ``vjp.ops`` the operators
of the graph that was run, ``vjp.text`` its MLIR. A training form that asks for a seed has the input
``seed``, fed with ``Vjp.SEED``.

Finite differences are central, along random directions, one operand at a time: for f(x) = sum of
cotangent times output, (f(x + hv) - f(x - hv)) / 2h against <gradient, v>. They are taken of the
training form's own outputs. Inputs must be away from kinks by more than h (``STEPS``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented
from training.trial import Trial
from training.vjp import OPSET, Array, Run, Vjp, node_model, session_of

__all__ = [
    "Array",
    "NotRunnableError",
    "Run",
    "Vjp",
    "check_model",
    "check_node",
    "ints",
    "node_model",
    "normal",
    "positive",
    "session_of",
    "spaced",
]

TorchFunction = Callable[..., Any]


class NotRunnableError(Exception):
    """ONNX Runtime cannot run the forward model itself, so there is nothing to compare with."""


def normal(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Array:
    """Return normally distributed values, the same for the same shape and seed."""
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape), dtype)


def positive(*shape: int, seed: int = 0, least: float = 0.3, dtype: Any = np.float64) -> Array:
    """Return values between ``least`` and ``least + 1.5``."""
    held = np.random.default_rng([seed, *shape]).random(shape)
    return np.asarray(held * 1.5 + least, dtype)


def spaced(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Array:
    """Return values in random order, between -2 and 2, no two equal and none near an integer/2.

    For operators with kinks at round numbers, or where values are equal.
    """
    count = int(np.prod(shape, dtype=np.int64))
    held = np.linspace(-2, 2, 2 * count + 1)[1::2] if count else np.empty(0)
    near = np.abs(held * 2 - np.round(held * 2)) < 0.1
    held = held + near * 0.06
    return np.asarray(np.random.default_rng([seed, *shape]).permutation(held), dtype).reshape(shape)


def ints(*values: int) -> Array:
    """Return a vector of int64, such as axes or a shape."""
    return np.array(values, np.int64)


def check_node(
    op_type: str,
    operands: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    outputs: int | Sequence[bool] = 1,
    literals: Collection[int] = (),
    domain: str = "",
    version: int = OPSET,
    torch: TorchFunction | None = None,
    **options: Any,
) -> Vjp:
    """Compare the gradients of one operator; ``options`` are those of :func:`check_model`.

    Raises AssertionError with the operand; `NotRunnableError` if ONNX Runtime lacks the operator.
    """

    def attempt(held: Sequence[Array | None]) -> Vjp:
        model = node_model(
            op_type, held, attributes, outputs=outputs, literals=literals, domain=domain,
            version=version,
        )  # fmt: skip
        feeds = {f"x{i}": o for i, o in enumerate(held) if o is not None and i not in literals}
        own = None if torch is None else _of_operands(torch, held)
        return check_model(model, feeds, torch=own, **options)

    try:
        return attempt(operands)
    except (NotRunnableError, NotImplemented):
        if not any(o is not None and o.dtype == np.float64 for o in operands):
            raise
    return attempt([_narrowed(o) for o in operands])


def _narrowed(operand: Array | None) -> Array | None:
    wide = operand is not None and operand.dtype == np.float64
    return operand.astype(np.float32) if operand is not None and wide else operand


def _of_operands(function: TorchFunction, operands: Sequence[Array | None]) -> TorchFunction:
    """Return ``function``, of all operands, as one of the tensors by name."""

    def call(tensors: Mapping[str, Any]) -> Any:
        import torch

        return function(*(
            None if o is None else tensors[f"x{i}"] if f"x{i}" in tensors else torch.tensor(o)
            for i, o in enumerate(operands)
        ))  # fmt: skip

    return call


def check_model(
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    *,
    wanted: Collection[str] | None = None,
    cotangents: Collection[str] | None = None,
    torch: TorchFunction | None = None,
    same_forward: bool = True,
    differences: bool | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> Vjp:
    """Compare the gradients of a model with finite differences and, where given, with PyTorch's.

    ``torch`` maps tensors by name (the inputs) to the outputs. ``differences`` are taken in float64
    and float32 unless it says otherwise. ``rtol`` loosens the comparison with PyTorch and with the
    forward model. Returns the :class:`Vjp`, for a look at its operators.
    """
    try:
        forward = session_of(model.SerializeToString())
        expected = forward.run(None, {i.name: feeds[i.name] for i in forward.get_inputs()})
    except Exception as error:  # its own types of error have no common base
        raise NotRunnableError(str(error)) from error
    names = [o.name for o in forward.get_outputs()]
    vjp = Vjp(model, wanted, cotangents)
    trial = Trial(vjp, dict(feeds), dict(zip(names, expected, strict=True)), seed, rtol)
    if same_forward:
        trial.compare_forward()
    if differences if differences is not None else trial.has_differences:
        trial.compare_differences()
    if torch is not None:
        trial.compare_torch(torch, outputs=same_forward)
    return vjp

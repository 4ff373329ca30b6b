"""Proof of a rule with a plain copy as its local op.

In ONNX Runtime, every strategy of the rule must produce the results of the whole operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.layout.rule import Rule, Strategy
from tensoropt.compiler.sharding.proof.parts import combine, cut
from tensoropt.compiler.sharding.rule.local_op import NEUTRAL
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["MESHES", "Proof", "prove"]

Array = npt.NDArray[Any]
Run = Callable[[Sequence[Array | None]], list[Array | None]]

MESHES = (Mesh((2,)), Mesh((4,)), Mesh((2, 2)))
"""Meshes on which rules are proved."""

RTOL, ATOL = 1e-4, 1e-5
"""Largest difference of floats: relative, and as a fraction of the largest value, at least of 1."""


@dataclass(frozen=True)
class Proof:
    """Number of strategies of a rule proved on ``mesh``, and their largest difference."""

    mesh: Mesh
    strategies: int
    difference: float


def prove(info: OpInfo, rule: Rule, run: Run, seed: int = 0) -> list[Proof]:
    """Return the proofs, one per mesh, of the op that ``run`` evaluates, on random operands.

    Raises:
        UserError: a strategy is wrong, or the op cannot be run; the message continues the name
        of the op.
    """
    rng = np.random.default_rng(seed)
    operands = [_operand(info, index, rng) for index in range(len(info.operands))]
    try:
        whole = run(operands)
    except UserError as error:
        raise UserError(f"does not run: {error}") from None
    return [_prove_on_mesh(rule, mesh, run, operands, whole, rng) for mesh in MESHES]


def _operand(info: OpInfo, index: int, rng: np.random.Generator) -> Array | None:
    tensor, literal = info.operands[index], info.literal(index)
    if literal is not None or tensor is None:
        return literal
    shape = [size for size in tensor.shape if size is not None]
    if len(shape) < tensor.rank:
        raise UserError("has a symbolic size, expected known sizes, see --dim")
    if tensor.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if tensor.dtype.startswith(("int", "uint")):
        return rng.integers(0, 8, shape).astype(tensor.dtype)
    if not tensor.dtype.startswith("float"):
        raise UserError(f"reads {tensor.dtype}, expected a type with random values")
    return rng.standard_normal(shape).astype(tensor.dtype)


def _prove_on_mesh(
    rule: Rule,
    mesh: Mesh,
    run: Run,
    operands: Sequence[Array | None],
    whole: Sequence[Array | None],
    rng: np.random.Generator,
) -> Proof:
    tried, most = strategies(rule, mesh), 0.0
    for strategy in tried:
        try:
            most = max(most, _difference(rule, strategy, mesh, run, operands, whole, rng))
        except UserError as error:
            raise _error(strategy, mesh, str(error)) from None
        except AssertionError as error:  # raised by `combine`
            message = " ".join(str(error).split())
            raise _error(strategy, mesh, f"produces inconsistent parts: {message}") from None
    return Proof(mesh, len(tried), most)


def _error(strategy: Strategy, mesh: Mesh, message: str) -> UserError:
    sides = (strategy.operands, strategy.results)
    operands, results = (" ".join(",".join(layout.texts) for layout in side) for side in sides)
    return UserError(f"has a rule that is wrong: {operands} -> {results} on mesh {mesh} {message}")


def _make_neutral(
    parts: Sequence[Sequence[Array | None]], rule: Rule, strategy: Strategy, mesh: Mesh
) -> None:
    """Fill the padding of reduced dimensions as :class:`LocalOp` does."""
    for operand, dim, number in rule.filled(strategy, mesh):
        factor, axes = rule.factors[number], strategy.axes_of(number)
        assert isinstance(factor.size, int) and factor.reduction is not None
        points = factor.part(mesh.extents(axes))
        for rank, part in enumerate(parts[operand]):
            # The last parts have fewer points that are not padding, or none.
            real = min(points, max(0, factor.size - points * mesh.linear(rank, axes)))
            if part is not None:
                part[(slice(None),) * dim + (slice(real, None),)] = NEUTRAL[factor.reduction]


def _difference(
    rule: Rule,
    strategy: Strategy,
    mesh: Mesh,
    run: Run,
    operands: Sequence[Array | None],
    whole: Sequence[Array | None],
    rng: np.random.Generator,
) -> float:
    """Return the largest difference of the ranks' results from the results of the whole op."""
    parts = [
        [None] * mesh.size if array is None else cut(array, layout, mesh, rng)
        for array, layout in zip(operands, strategy.operands, strict=True)
    ]
    _make_neutral(parts, rule, strategy, mesh)
    ranks = [run([own[rank] for own in parts]) for rank in range(mesh.size)]
    most = 0.0
    for number, (expected, layout) in enumerate(zip(whole, strategy.results, strict=True)):
        if expected is not None:
            own = [part for results in ranks if (part := results[number]) is not None]
            assert len(own) == mesh.size, "omits a result"
            shape = layout.local_shape(expected.shape, mesh)
            if own[0].shape != tuple(shape):
                raise UserError(
                    f"produces result {number} of another shape, expected {[*shape]} on a rank, "
                    f"got: {[*own[0].shape]}"
                )
            got = combine(own, layout, mesh, expected.shape)
            most = max(most, _compare(number, got, expected))
    return most


def _compare(number: int, got: Array, expected: Array) -> float:
    if expected.dtype.kind != "f":
        if not np.array_equal(got, expected):
            raise UserError(f"differs in result {number}")
        return 0.0
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    most = float(difference.max(initial=0.0))
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
    if not np.allclose(got, expected, rtol=RTOL, atol=ATOL * scale, equal_nan=True):
        raise UserError(f"differs by up to {most:.3g} in result {number}")
    return most

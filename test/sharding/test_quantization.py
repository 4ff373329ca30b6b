"""Quantization: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sharding.harness import Case, check, normal, offered

from tensoropt.compiler.sharding.proof.onnx_node import Array

MESHES = [(2,), (4,), (2, 2)]
OPERATORS = ("QuantizeLinear", "DequantizeLinear")


def case_of(
    name: str,
    *scale: int,
    zero_point: bool = True,
    shape: tuple[int, ...] = (4, 8, 4),
    **attributes: Any,
) -> Case:
    rng = np.random.default_rng(0)
    floats, bytes_ = normal(*shape), rng.integers(0, 255, shape).astype(np.uint8)
    operands: list[Array] = [
        floats if name == "QuantizeLinear" else bytes_,
        np.asarray(rng.uniform(0.01, 0.1, scale), np.float32),
    ]
    if zero_point:
        operands.append(np.asarray(rng.integers(100, 150, scale), np.uint8))
    return Case(name, operands, attributes, version=21)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("scale", [(), (1,)])
def test_one_scale_for_all(name: str, scale: tuple[int, ...], mesh: tuple[int, ...]) -> None:
    report = check(case_of(name, *scale), mesh)
    if mesh == (2,):
        splits = {f"S({dim}) R R -> S({dim})" for dim in range(3)}
        assert report.offered == splits | {"R R R -> R"}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(("axis", "size"), [(1, 8), (-1, 4), (0, 4)])
def test_a_scale_per_channel(name: str, axis: int, size: int) -> None:
    found = offered(case_of(name, size, axis=axis))
    dim = axis % 3
    rest = {f"S({other}) R R -> S({other})" for other in range(3) if other != dim}
    assert found == rest | {"R R R -> R", f"S({dim}) S(0) S(0) -> S({dim})"}


@pytest.mark.parametrize("name", OPERATORS)
def test_without_zero_point(name: str) -> None:
    found = offered(case_of(name, 8, zero_point=False, axis=1))
    assert "S(1) S(0) -> S(1)" in found


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(("blocks", "size"), [(4, 2), (2, 4), (3, 3)])
def test_a_scale_per_block(name: str, blocks: int, size: int) -> None:
    """The last block of three is incomplete: parts end inside of blocks, and scales are whole."""
    found = offered(case_of(name, 4, blocks, 4, axis=1, block_size=size), (2,))
    kept = {"R R R -> R", "S(0) S(0) S(0) -> S(0)", "S(2) S(2) S(2) -> S(2)"}
    assert found == kept | {"S(1) R R -> S(1)" if blocks == 3 else "S(1) S(1) S(1) -> S(1)"}
    check(case_of(name, 4, blocks, 4, axis=1, block_size=size), (4,))


@pytest.mark.parametrize("mesh", [(2,), (4,), (3,), (6,), (2, 2)])
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("zero_point", [True, False])
def test_parts_end_inside_of_blocks_that_do_not_divide(
    mesh: tuple[int, ...], name: str, zero_point: bool
) -> None:
    """Of three blocks, 2 ranks have one and a half each, 4 ranks three quarters."""
    case = case_of(name, 4, 3, 4, zero_point=zero_point, shape=(4, 24, 4), axis=1, block_size=8)
    split, whole = (",".join([one] * len(mesh)) for one in ("S(1)", "R"))
    scales = " ".join([whole] * (1 + zero_point))
    assert f"{split} {scales} -> {split}" in offered(case, mesh)


def test_operators_of_the_runtime_quantize_as_those_of_the_standard() -> None:
    for name in OPERATORS:
        for scale in ((), (8,)):
            case = case_of(name, *scale, **({"axis": 1} if scale else {}))
            ours = replace(case, version=1, domain="com.microsoft")
            assert offered(ours) == offered(case)

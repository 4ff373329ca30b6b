"""The ONNX standard's own node tests as cases for every rule, on meshes of even and odd sizes."""

from __future__ import annotations

import contextlib
import warnings
from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from budgets import some
from sharding.harness import Case, NotRunnableError, check

from tensoropt.compiler.sharding.rule.registry import registered
from tensoropt.dialects.onnx import op_name

MESHES = [(3,), (2, 2)]

# The newest opset of the standard domain that ONNX Runtime loads without a warning.
NEWEST = 27

# Ops that draw random numbers, and those the standard has no one-node numeric test for.
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"}
WITHOUT_CASES = RANDOM | {"RandomUniformLike", "GlobalLpPool", "SimplifiedLayerNormalization"}
WITHOUT_CASES |= {"MaxRoiPool", "RoiAlign"}  # the runtime has older versions only
# Functions without a kernel, which a session of one node cannot inline; test_linear_attention.py.
WITHOUT_CASES |= {"LinearAttention", "CausalConvWithState"}


@cache
def standard_cases() -> dict[str, list[Case]]:
    """Return the cases of each registered operator, by its name in the registry."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the generators: they divide by zero on purpose
        collected = collect_testcases(None)
    names, found = set(registered()) - RANDOM, defaultdict(list)
    for held in collected:
        case = _case(held) if len(held.model.graph.node) == 1 else None
        if case is not None and _registered_name(case) in names:
            found[_registered_name(case)].append(case)
    return found


def _registered_name(case: Case) -> str:
    return op_name(case.domain, case.op_type).removeprefix("onnx.")


def _case(held: Any) -> Case | None:
    """Return a node test as a case, ``None`` for types that numpy or the runtime lacks.

    Whole numbers, truth values and scalars after the first operand are literals: most are sizes,
    axes or bounds, which models hold as constants.
    """
    graph, (node,) = held.model.graph, held.model.graph.node
    data = dict(zip((i.name for i in graph.input), map(_array, held.data_sets[0][0]), strict=True))
    operands = [data.get(name) for name in node.input]
    arrays = [(i, array) for i, array in enumerate(operands) if array is not None]
    draws = node.op_type == "Dropout" and len(arrays) == 3
    if draws or any(
        array.dtype.kind in "OUSV" or array.dtype.isbuiltin != 1 for _, array in arrays
    ):
        return None
    versions = {opset.domain: opset.version for opset in held.model.opset_import}
    return Case(
        node.op_type,
        operands,
        {a.name: _attribute(a) for a in node.attribute},
        min(versions[node.domain], NEWEST) if not node.domain else versions[node.domain],
        node.domain,
        frozenset(i for i, a in arrays if i and (a.dtype.kind in "iub" or a.size == 1)),
        tuple(bool(name) for name in node.output),
    )


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else np.array(None)


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, list):
        return [item.decode() if isinstance(item, bytes) else item for item in value]
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(set(registered()) - RANDOM))
def test_every_strategy_agrees_with_the_whole_op(name: str) -> None:
    ran = 0
    for case in some(standard_cases()[name], 6):
        rtol, atol = _tolerance(case)
        try:
            for mesh in MESHES:
                check(case, mesh, rtol=rtol, atol=atol)
        except NotRunnableError:  # no kernel for these element types
            continue
        ran += 1
    domain, _, _ = name.rpartition(".")
    assert ran or domain or name in WITHOUT_CASES, f"{name}: no case of the standard could be run"


@pytest.mark.parametrize("name", sorted(set(registered()) - RANDOM))
@pytest.mark.parametrize("first", [0, 1])
def test_sizes_that_only_the_running_model_knows(name: str, first: int) -> None:
    """Every strategy agrees where all sizes, or all but the first of each tensor, are hidden."""
    for case in standard_cases()[name][:3]:
        hidden = _sizes(case, first)
        results = frozenset((i, dim) for i in range(len(case.results)) for dim in range(first, 9))
        rtol, atol = _tolerance(case)
        with contextlib.suppress(NotRunnableError):
            check(
                replace(case, symbolic=hidden, symbolic_results=results), (2,), rtol=rtol, atol=atol
            )


def _sizes(case: Case, first: int) -> frozenset[tuple[int, int]]:
    held = [(i, o) for i, o in enumerate(case.operands) if o is not None and i not in case.literals]
    return frozenset((i, dim) for i, array in held for dim in range(first, array.ndim))


def _tolerance(case: Case) -> tuple[float, float]:
    """Return how far results may be off: partial sums of float16 are rounded when they are cut."""
    half = any(array is not None and array.dtype == np.float16 for array in case.operands)
    return (1e-2, 5e-3) if half else (1e-3, 1e-4)


def test_there_are_many_cases() -> None:
    assert sum(map(len, standard_cases().values())) > 700

"""Every node test of the ONNX standard that can be differentiated: gradients against differences.

A case of an operator in ``registered()`` has a floating point input and result. Its floating point
inputs are moved a little, off kinks and ties, and are float64 where ONNX Runtime has the kernels;
whole numbers and truth values become constants. An operator whose cases need more is in one of the
tables below; a case that cannot be differentiated, with the reason, in `EXCLUDED`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from budgets import some
from node_tests import NodeTest, collect
from onnx import helper, numpy_helper
from training.harness import Array, NotRunnableError, check_model

from tensoropt.compiler.training.gradients.registry import TRAINING_OPSET, registered

# Operands that are floating point numbers and constants of a model, or have no gradient.
CONSTANT: dict[str, tuple[int, ...]] = {
    "CastLike": (1,),  # a type
    "Dropout": (1,),
    "NegativeLogLikelihoodLoss": (2,),  # weights of classes
    "OneHot": (1,),  # a count
    "Resize": (1, 2),
    "RotaryEmbedding": (1, 2),  # tables of angles
    "SoftmaxCrossEntropyLoss": (2,),
}

# In training they compute something else, so their results are not those of the standard.
OTHER_IN_TRAINING = {"BatchNormalization", "Dropout"}

# ONNX Runtime computes them in float32 where they are float64, or ONNX says that they cannot be.
FLOAT32_ONLY = {"GroupNormalization", "MeanVarianceNormalization", "Shrink"}

# ONNX does not infer the shape of their results, which models have to tell.
SHAPE_TOLD = {"GroupNormalization", "MaxUnpool", "MeanVarianceNormalization"}

# Functions of positive numbers.
POSITIVE = {"Log", "Pow", "Sqrt"}

# Operators that the standard has no case for, or none that could be run and differentiated.
WITHOUT_CASES = {"GlobalLpPool", "SimplifiedLayerNormalization", "Trilu"}

# Cases, by patterns of names, and why they are none here.
EXCLUDED: dict[str, str] = {
    "test_MaxPool1d_*": "elements are closer to each other than a step of float32",
    "test_acosh_example": "at the edge of where the function is defined",
    "test_atanh": "closer to a pole than finite differences can tell",
    "test_attention_*boolmask*nan_robustness": "the runtime has no number for rows masked whole",
    "test_attention_*fullymasked*": "the runtime has no number for rows masked whole",
    "test_attention_*mode3_softmax_precision": "hidden keys are at infinity in a narrower softmax",
    "test_attention_*window*": "a window is refused",
    "test_attention_*nonpad*": "a cache of keys and values is refused",
    "test_attention_*padded_kv*": "a cache of keys and values is refused",
    "test_attention_*with_past*": "a cache of keys and values is refused",
    "test_cast*_FLOAT8E5M2_to_FLOAT*": "numbers too large for finite differences in float32",
    "test_einsum_batch_diagonal": "a diagonal is refused",
    "test_maxpool_3d_default": "elements are closer to each other than a step of float32",
    "test_pow_types_int*_float32": "the result is a whole number",
    "test_resize_*_not_larger": "keeping an aspect ratio is refused",
    "test_resize_*_not_smaller": "keeping an aspect ratio is refused",
    "test_scatter_elements_with_reduction_m*": "replaced by a product or an extreme: refused",
    "test_scatternd_m*": "replaced by a product or an extreme: refused",
    "test_tan": "closer to a pole than finite differences can tell",
}

# Tests that are older than this, which PyTorch once exported, have attributes for operands.
_OLDEST = 9

_OLDER = (23, 21, 20)


@cache
def cases() -> dict[str, list[NodeTest]]:
    """Return the tests of one node that can be differentiated, by operator."""
    found: dict[str, list[NodeTest]] = defaultdict(list)
    for test in collect():
        if _is_case(test):
            found[test.operators[0]].append(test)
    return found


def _is_case(test: NodeTest) -> bool:
    model = onnx.ModelProto.FromString(test.model)
    version = max((e.version for e in model.opset_import if not e.domain), default=0)
    if len(model.graph.node) != 1 or version < _OLDEST:
        return False
    return _has_floats(test) and not any(fnmatchcase(test.name, held) for held in EXCLUDED)


def _has_floats(test: NodeTest) -> bool:
    """Say whether there is a floating point input, and a result of a type that is not rounded."""
    given = test.inputs.values()
    if not all(isinstance(value, np.ndarray) for value in given) or not any(map(_is_float, given)):
        return False
    casts = test.operators[0] in ("Cast", "CastLike")
    return any(_is_float(v) and not (casts and v.dtype.itemsize < 4) for v in test.wanted)


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (
        value.dtype.kind == "f" or value.dtype.name == "bfloat16"
    )


@dataclass(frozen=True)
class Trial:
    """A node with inputs of the type ``dtype``, in version ``opset`` of the standard."""

    test: NodeTest
    dtype: Any
    opset: int

    def run(self) -> None:
        """Check the gradients; raises `NotRunnableError` where there is no kernel."""
        model, feeds = self._parts()
        name = self.test.operators[0]
        check_model(model, feeds, same_forward=name not in OTHER_IN_TRAINING, rtol=1e-4)

    def _parts(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        model = onnx.ModelProto.FromString(self.test.model)
        (node,) = model.graph.node
        names = [value.name for value in model.graph.output]
        constant = {node.input[i] for i in CONSTANT.get(self.test.operators[0], ())
                    if i < len(node.input)}  # fmt: skip
        held = {n: v for n, v in self.test.inputs.items() if n in node.input}
        feeds = {n: self._moved(v) for n, v in held.items() if _is_float(v) and n not in constant}
        graph = helper.make_graph(
            [*(_constant(n, v) for n, v in held.items() if n not in feeds), node],
            "case",
            [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
             for n, v in feeds.items()],
            [self._result(*pair) for pair in zip(names, self.test.wanted, strict=True)],
        )  # fmt: skip
        imports = [
            helper.make_opsetid(entry.domain, entry.version if entry.domain else self.opset)
            for entry in model.opset_import
        ]
        return helper.make_model(graph, opset_imports=imports, ir_version=10), feeds

    def _result(self, name: str, wanted: Array) -> onnx.ValueInfoProto:
        if self.test.operators[0] not in SHAPE_TOLD:
            return onnx.ValueInfoProto(name=name)
        number = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        return helper.make_tensor_value_info(name, number, wanted.shape)

    def _moved(self, value: Array) -> Array:
        """Return the values, each moved by 0.01 to 0.03 up or down; numbers for what is none."""
        rng = np.random.default_rng(value.shape)
        step = rng.uniform(0.01, 0.03, value.shape) * rng.choice([-1, 1], value.shape)
        wide = value.astype(np.float64)
        moved = np.where(np.isfinite(wide), wide, 0.5) + step
        return np.asarray(abs(moved) if self.test.operators[0] in POSITIVE else moved, self.dtype)


def _constant(name: str, value: Array) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))


def check(test: NodeTest) -> bool:
    """Check the first form of a test that ONNX Runtime runs; say whether there is one."""
    model = onnx.ModelProto.FromString(test.model)
    own = next((e.version for e in model.opset_import if not e.domain), TRAINING_OPSET)
    versions = [max(own, TRAINING_OPSET), *(v for v in _OLDER if v < own)]
    narrow = test.operators[0] in FLOAT32_ONLY
    for dtype in (np.float32,) if narrow else (np.float64, np.float32):
        for version in versions:
            try:
                Trial(test, dtype, version).run()
            except NotRunnableError:
                continue
            return True
    return False


@pytest.mark.sampled
@pytest.mark.parametrize("name", [n for n in registered() if not n.startswith("tensoropt.")])
def test_gradients_of_the_cases_of_the_standard(name: str) -> None:
    ran = sum(check(test) for test in some(cases().get(name, ()), 4))
    assert ran or "." in name or name in WITHOUT_CASES, f"{name}: no case could be differentiated"


def test_every_exclusion_is_of_a_case() -> None:
    names = [test.name for test in collect()]
    for pattern in EXCLUDED:
        assert any(fnmatchcase(name, pattern) for name in names), f"no case is called {pattern}"

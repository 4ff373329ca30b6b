"""Operators with several outputs: the gradients of each output, alone and together.

Every operator in ``registered()`` whose schema has more than one output is here. What it gives is
weighed by random numbers, for every choice of its floating point outputs, and compared with finite
differences; or it is refused by the name of the output.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from training.harness import (
    Array,
    NotRunnableError,
    Vjp,
    check_model,
    ints,
    node_model,
    normal,
    positive,
    session_of,
    spaced,
)

from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.gradients import registry
from tensoropt.compiler.training.gradients.registry import registered
from tensoropt.dialects.onnx import schema

_STANDARD, _RUNTIME = 23, 1


@dataclass(frozen=True)
class Case:
    """One node: ``operands``, and which of its ``outputs`` are there and may be used.

    ``refused`` are the others, by index, with their names. ``same`` says whether training computes
    what the operator does at inference.
    """

    name: str
    operands: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[bool, ...] = (True, True)
    literals: frozenset[int] = frozenset()
    refused: Mapping[int, str] = field(default_factory=dict)
    same: bool = True
    opset: int = _STANDARD

    def model(self, dtype: Any, there: Sequence[bool]) -> onnx.ModelProto:
        """Return the node as a model with the results ``there``."""
        domain, _, op_type = self.name.rpartition(".")
        return node_model(
            op_type,
            self.operands_as(dtype),
            self.attributes,
            outputs=there,
            literals=self.literals,
            domain=domain,
            version=_RUNTIME if domain else self.opset,
        )

    def operands_as(self, dtype: Any) -> list[Array | None]:
        """Return the operands, those of float64 in ``dtype``."""
        return [
            x.astype(dtype) if x is not None and x.dtype == np.float64 else x for x in self.operands
        ]

    def feeds(self, dtype: Any) -> dict[str, Array]:
        """Return the operands that are no literals, by name."""
        given = enumerate(self.operands_as(dtype))
        return {f"x{i}": x for i, x in given if x is not None and i not in self.literals}


def _recurrent(name: str, gates: int, outputs: int, **held: Any) -> Case:
    operands = [normal(3, 2, 4), normal(2, gates * 5, 4), normal(2, gates * 5, 5, seed=1)]
    operands += [normal(2, 2 * gates * 5, seed=2), None, *[normal(2, 2, 5)] * (outputs - 1)]
    attributes = {"hidden_size": 5, "direction": "bidirectional", **held}
    return Case(name, operands, attributes, (True,) * outputs)


def _skip(name: str, parameters: int) -> Case:
    operands = [normal(2, 3, 8), normal(2, 3, 8, seed=1)]
    operands += [normal(8, seed=i) for i in range(parameters)]
    statistics = {1: "mean", 2: "inv_std_var"}
    held = {"epsilon": 1e-2}
    return Case(name, operands, held, (True, False, False, True), refused=statistics)


_LENGTHS = [np.full(2, 2, np.int32), np.array(3, np.int32)]
_HEADS = [normal(2, 3, 32), normal(2, 3, 16, seed=1), normal(2, 3, 16, seed=2)]

CASES = [
    Case(
        "Attention",
        [normal(2, 3, 12), normal(2, 4, 6, seed=1), normal(2, 4, 6, seed=2)],
        {"q_num_heads": 4, "kv_num_heads": 2},
        (True,) * 4,
    ),
    *(
        Case(
            "Attention",
            [normal(2, 3, 3, 4), normal(2, 3, 3, 4, seed=1), normal(2, 3, 3, 4, seed=2)],
            {"qk_matmul_output_mode": mode, "is_causal": int(mode != 2), "softcap": 2.0},
            (True,) * 4,
        )
        for mode in range(4)
    ),
    Case(
        "BatchNormalization",
        [normal(4, 3, 5) + 2, *(normal(3, seed=i) for i in (1, 2, 3)), positive(3)],
        {"training_mode": 1, "momentum": 0.7},
        (True,) * 3,
    ),
    Case("Dropout", [normal(4, 5)], same=False),
    Case("Dropout", [normal(4, 5), np.array(0.0)], literals=frozenset({1})),
    _recurrent("GRU", 3, 2),
    _recurrent("GRU", 3, 2, linear_before_reset=1),
    _recurrent("LSTM", 4, 3),
    _recurrent("RNN", 1, 2),
    Case("LayerNormalization", [normal(2, 3, 8), normal(8), normal(8, seed=1)], {}, (True,) * 3),
    Case("LayerNormalization", [normal(2, 3, 4), normal(3, 4)], {"axis": 1}, (True,) * 3),
    Case("MaxPool", [spaced(2, 3, 6, 5)], {"kernel_shape": [3, 2], "strides": [2, 1]}),
    Case("SimplifiedLayerNormalization", [normal(3, 8), normal(8)], {"epsilon": 1e-2}),
    *(
        Case(
            "SoftmaxCrossEntropyLoss",
            [normal(4, 5, 2), np.array([[0, 4], [1, 2], [3, 3], [2, 0]]), positive(5)],
            {"reduction": how, "ignore_index": 3},
            literals=frozenset({2}),
        )
        for how in ("none", "mean", "sum")
    ),
    Case("Split", [normal(4, 6), ints(1, 3, 2)], {"axis": -1}, (True,) * 3,
         literals=frozenset({1})),
    Case("TopK", [spaced(3, 5), ints(2)], {"axis": 1}, literals=frozenset({1})),
    Case("com.microsoft.Attention", [normal(2, 3, 8), normal(8, 24), normal(24)],
         {"num_heads": 2}),
    Case(
        "com.microsoft.GroupQueryAttention",
        [*_HEADS, None, None, *_LENGTHS],
        {"num_heads": 4, "kv_num_heads": 2},
        (True,) * 3,
        frozenset({5, 6}),
        {3: "output_qk"},
    ),
    Case(
        "com.microsoft.MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 4, 8, seed=1), normal(2, 4, 8, seed=2), normal(24)],
        {"num_heads": 2},
        (True,) * 3,
        refused={3: "qk"},
    ),
    _skip("com.microsoft.SkipLayerNormalization", 3),
    _skip("com.microsoft.SkipSimplifiedLayerNormalization", 2),
]  # fmt: skip


def _outputs_of(name: str) -> int:
    """Return how many outputs an operator has in the newest version that is known."""
    domain, _, op_type = name.rpartition(".")
    held = schema(domain, op_type, onnx.defs.onnx_opset_version())
    assert held is not None, name
    return held.max_outputs


def test_every_operator_with_several_outputs_is_here() -> None:
    names = [name for name in registered() if not name.startswith("tensoropt.")]
    assert {case.name for case in CASES} == {n for n in names if _outputs_of(n) > 1}


@pytest.mark.parametrize("name", sorted({case.name for case in CASES}))
def test_every_output_is_used_or_refused(name: str) -> None:
    count = _outputs_of(name)
    own = [case for case in CASES if case.name == name]
    for index in range(count if count < 2**31 - 1 else 0):
        used = any(index < len(case.outputs) and case.outputs[index] for case in own)
        assert used or any(index in case.refused for case in own), f"output {index}"


def _results(case: Case, dtype: Any) -> dict[str, Array]:
    """Return what ONNX Runtime gives; raises `NotRunnableError` where it has no kernel."""
    try:
        session = session_of(case.model(dtype, case.outputs).SerializeToString())
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, session.run(names, case.feeds(dtype)), strict=True))
    except Exception as error:  # its own types of error have no common base
        raise NotRunnableError(str(error)) from error


def _runnable(case: Case) -> tuple[Any, dict[str, Array]]:
    """Return the widest type that there is a kernel for, and the results in it."""
    try:
        return np.float64, _results(case, np.float64)
    except NotRunnableError:
        return np.float32, _results(case, np.float32)


def _with_types(model: onnx.ModelProto, results: Mapping[str, Array]) -> onnx.ModelProto:
    """Tell the types of outputs, which ONNX does not infer of all that there are."""
    for value in model.graph.output:
        held = results.get(value.name, np.zeros((), np.float32))
        number = helper.np_dtype_to_tensor_dtype(held.dtype)
        shape = held.shape if value.name in results else None
        value.CopyFrom(helper.make_tensor_value_info(value.name, number, shape))
    return model


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradients_of_every_choice_of_outputs(case: Case) -> None:
    dtype, results = _runnable(case)
    floats = [name for name, held in results.items() if held.dtype.kind == "f"]
    for count in range(1, len(floats) + 1):
        for chosen in itertools.combinations(floats, count):
            check_model(
                _with_types(case.model(dtype, case.outputs), results),
                case.feeds(dtype),
                cotangents=chosen,
                same_forward=case.same,
                rtol=1e-4,
            )


@pytest.mark.parametrize(
    ("case", "index"),
    [(case, index) for case in CASES for index in case.refused],
    ids=lambda held: held.name if isinstance(held, Case) else str(held),
)
def test_what_is_refused_is_named(case: Case, index: int) -> None:
    there = [i < len(case.outputs) and case.outputs[i] for i in range(_outputs_of(case.name))]
    there[index] = True
    op_type = case.name.rpartition(".")[2]
    message = rf"^node '{op_type}' \({case.name}\) has no gradient: expected its output {index} "
    message += rf"\({case.refused[index]}\) to be unused$"
    dtype, results = _runnable(case)
    with pytest.raises(UserError, match=message):
        Vjp(_with_types(case.model(dtype, there), results))


@pytest.mark.parametrize("used", [["y1"], ["y0", "y1"]])
def test_a_rule_that_forgets_an_output(monkeypatch: pytest.MonkeyPatch, used: list[str]) -> None:
    def first_only(b: registry.Backward) -> registry.Gradients:
        return b.first(b.make.concat([b.dy, b.dy], 0))

    monkeypatch.setitem(registry._GRADIENTS, "Split", first_only)
    model = node_model("Split", [normal(4, 3)], {"num_outputs": 2}, outputs=2)
    text = r"^node 'Split' \(Split\) has no gradient: the loss depends on its output 1$"
    with pytest.raises(UserError, match=text):
        Vjp(model, cotangents=used)

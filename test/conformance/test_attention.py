"""Attention on real ranks: every split of both operators, next to PyTorch in float64."""

from __future__ import annotations

import onnx
import pytest
import torch
from attention_reference import Case, Options, arrays_of, gradient_model, operands, reference
from conformance import prove
from node_tests import NodeTest

_CAUSAL = Options(causal=True)
_CASES = {
    "all keys": Case(2, 2, 2, 16, 16),
    "causal": Case(2, 2, 1, 16, 16, options=_CAUSAL),
    "causal, of one key head": Case(2, 1, 4, 16, 16, options=_CAUSAL),
    "window": Case(2, 2, 1, 16, 16, options=Options(causal=True, window=5)),
    "window without order": Case(2, 2, 1, 16, 16, options=Options(window=5)),
    "dropout": Case(2, 2, 2, 16, 16, options=_CAUSAL, ratio=0.3),
    "softcap": Case(2, 2, 1, 16, 16, options=Options(causal=True, softcap=2.0)),
    "lengths": Case(2, 2, 1, 16, 16, options=_CAUSAL, lengths=(11, 3)),
    "lengths of no key": Case(2, 2, 1, 16, 16, lengths=(0, 9)),
    "bias": Case(2, 2, 2, 16, 16, bias=(True, True, True)),
    "causal bias of keys": Case(2, 2, 2, 16, 16, options=_CAUSAL, bias=(True, False, False)),
    "masked bias": Case(2, 2, 1, 16, 16, bias=(False, False, True), is_masked=True),
    "few queries of many keys": Case(2, 2, 1, 4, 32, options=Options(causal=True, offset=28)),
    "queries before all keys": Case(2, 2, 1, 16, 16, options=Options(causal=True, offset=-5)),
}


def _node_test(name: str, case: Case, *, trained: bool) -> NodeTest:
    """Return a test of both operators; a bias has a gradient if it is ``trained``."""
    model, tensors = gradient_model(case), operands(case)
    if case.bias is not None and not trained:
        model.graph.node[1].output.remove("dbias")
        model.graph.output.remove(next(o for o in model.graph.output if o.name == "dbias"))
    y, lse, gradients = reference(case, tensors)
    found = {"y": y, "lse": lse, **{f"d{n}": own for n, own in gradients.items()}}
    wanted = [found[own.name].to(torch.float32).numpy() for own in model.graph.output]
    inputs = arrays_of(case, tensors)
    for value, own in zip(model.graph.output, wanted, strict=True):
        kind = onnx.TensorProto.FLOAT
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kind, own.shape))
    kinds = ("tensoropt.Attention", "tensoropt.AttentionGradient")
    data = model.SerializeToString()
    return NodeTest(name, data, inputs, wanted, 1e-4, 1e-5, kinds, draws=False)


@pytest.mark.parametrize("names", [list(_CASES)[::2], list(_CASES)[1::2]])
def test_every_split_computes_what_pytorch_does(names: list[str]) -> None:
    tests = [_node_test(name, _CASES[name], trained=False) for name in names]
    verdicts = prove(tests)
    assert {v.test: v.failures for v in verdicts if v.failures} == {}
    assert len(verdicts) == 2 * len(tests)
    assert all(verdict.passed > 3 for verdict in verdicts)

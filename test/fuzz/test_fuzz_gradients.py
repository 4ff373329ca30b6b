"""Random differentiable graphs: a sample, and that a wrong gradient is found and made small."""

from __future__ import annotations

from dataclasses import replace

import fuzz_gradients
import numpy as np
import pytest
import torch
from fuzz.gradients.drawing import live, random_graph
from fuzz.gradients.graph import Graph, Node, gradients, model_of
from fuzz.gradients.minimise import minimise
from fuzz.gradients.ranks import can_run, try_ranks
from fuzz.gradients.trial import FAILED, PASSED, REFUSED, UNFIT, WEAK, try_graph

from tensoropt.compiler.training.gradients import registry

SAMPLE = range(20)
W = np.array([[0.5, -1.0, 2.0]], np.float32)


def graph(*nodes: Node, **held: object) -> Graph:
    whole = Graph(20, "float32", nodes, {}, {"w1": W}, {}, f"output:{nodes[-1].results[0]}")
    return replace(whole, **held)


SQUARE = Node("Mul", ("w1", "w1"), ("v1",), torch.mul)
SIN = Node("Sin", ("v1",), ("v2",), torch.sin)
NEG = Node("Neg", ("v1",), ("v3",), torch.neg)
BOTH = Node("Add", ("v2", "v3"), ("v4",), torch.add)
TOTAL = Node("ReduceSum", ("v4",), ("v5",), torch.sum, {"keepdims": 0})


def test_a_graph_is_the_same_for_the_same_seed() -> None:
    one, other = random_graph(7), random_graph(7)
    assert model_of(one).SerializeToString() == model_of(other).SerializeToString()
    assert all(np.array_equal(one.inputs[name], other.inputs[name]) for name in one.inputs)


def test_a_right_gradient_passes() -> None:
    whole = graph(SQUARE, SIN, NEG, BOTH, TOTAL)
    _, found = gradients(whole, torch.float64)
    np.testing.assert_allclose(found["w1"], (np.cos(W**2) - 1) * 2 * W, rtol=1e-6)
    assert try_graph(whole).kind == PASSED


def test_a_wrong_gradient_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._GRADIENTS, "Sin", lambda b: [b.dy])
    small, outcome = minimise(graph(SQUARE, SIN, NEG, BOTH, TOTAL), try_graph)
    assert outcome.kind == FAILED
    assert "the gradient of" in outcome.why
    assert {node.op_type for node in small.nodes} == {"Sin", "Add", "ReduceSum"}


def test_a_crash_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._GRADIENTS, "Sin", lambda b: [b.saved("nothing")])
    outcome = try_graph(graph(SQUARE, SIN, NEG, BOTH, TOTAL))
    assert (outcome.kind, outcome.why) == (FAILED, "KeyError: 'nothing'")


def test_what_onnx_runtime_does_not_run_is_unfit() -> None:
    wrong = replace(SIN, torch=torch.cos)
    assert try_graph(graph(SQUARE, wrong, NEG, BOTH, TOTAL)).kind == UNFIT
    assert try_graph(graph(replace(SQUARE, op_type="NoSuch"), SIN, NEG, BOTH, TOTAL)).kind == UNFIT


def test_nodes_that_nothing_needs_go() -> None:
    whole = live(graph(SQUARE, SIN, NEG, replace(TOTAL, operands=("v2",))))
    assert [node.op_type for node in whole.nodes] == ["Mul", "Sin", "ReduceSum"]


def test_a_sample() -> None:
    for seed in SAMPLE:
        outcome = try_graph(random_graph(seed))
        assert outcome.kind in (PASSED, WEAK, REFUSED), f"seed {seed}: {outcome.why}"


def test_a_sample_on_ranks() -> None:
    tried = 0
    for seed in SAMPLE[:4]:
        whole = random_graph(seed)
        if can_run(whole):
            outcome, tried = try_ranks(whole, seed), tried + 1
            assert outcome.kind == PASSED, f"seed {seed}: {outcome.why}"
    assert tried > 1


def test_the_command_ends_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--count", "4", "--jobs", "2", "--on-ranks", "2"]
    monkeypatch.setattr("sys.argv", ["fuzz_gradients.py", *flags])
    assert fuzz_gradients.main() == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("4 graphs (")
    assert line.endswith("operators: 0 findings")

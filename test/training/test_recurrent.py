"""Gradients of LSTM, GRU and RNN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training.harness import check_node, node_model, normal
from training.vjp import Vjp

from tensoropt.compiler.support.errors import UserError

T, B, N, H = 4, 3, 5, 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# Where PyTorch has the gates of the standard: i o f c there is i f c o here, z r h is r z n.
ORDER = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2], "RNN": [0]}


def operands(
    kind: str, ways: int = 1, *, biased: bool = True, states: bool = False, layout: int = 0
) -> list[Any]:
    """Return input, weights, biases and states of a network of ``ways`` directions."""
    gates = GATES[kind]
    held: list[Any] = [
        normal(*((B, T, N) if layout else (T, B, N))),
        0.5 * normal(ways, gates * H, N, seed=1),
        0.5 * normal(ways, gates * H, H, seed=2),
        0.5 * normal(ways, 2 * gates * H, seed=3) if biased else None,
    ]
    if states:
        shape = (B, ways, H) if layout else (ways, B, H)
        held += [None, normal(*shape, seed=4)]
        held += [normal(*shape, seed=5)] if kind == "LSTM" else []
    return held


def own(kind: str, x: Any) -> Any:
    """Return the rows of a weight in the order of PyTorch."""
    return x.unflatten(0, (GATES[kind], H))[ORDER[kind]].flatten(0, 1)


def expected(kind: str, ways: int, activation: str = "tanh") -> Any:
    """Return the function of the operands that PyTorch computes: all results."""
    import torch

    def call(x: Any, w: Any, r: Any, b: Any, _: Any = None, h: Any = None, c: Any = None) -> Any:
        options = {"nonlinearity": activation} if kind == "RNN" else {}
        module = getattr(torch.nn, kind)(N, H, bidirectional=ways == 2, bias=b is not None,
                                         dtype=x.dtype, **options)  # fmt: skip
        held = {}
        for way, end in enumerate(("", "_reverse")[:ways]):
            held[f"weight_ih_l0{end}"], held[f"weight_hh_l0{end}"] = (
                own(kind, w[way]),
                own(kind, r[way]),
            )
            if b is not None:
                first, second = b[way].chunk(2)
                held[f"bias_ih_l0{end}"], held[f"bias_hh_l0{end}"] = (
                    own(kind, first), own(kind, second)
                )  # fmt: skip
        zeros = torch.zeros(ways, B, H, dtype=x.dtype)
        state = zeros if h is None else h
        given = (state, zeros if c is None else c) if kind == "LSTM" else state
        y, last = torch.func.functional_call(module, held, (x, given))
        y = y.unflatten(2, (ways, H)).transpose(1, 2)
        return (y, *last) if kind == "LSTM" else (y, last)

    return call


def outputs(kind: str) -> int:
    return 3 if kind == "LSTM" else 2


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_directions_and_biases(kind: str, ways: int, biased: bool) -> None:
    attributes: dict[str, Any] = {"hidden_size": H}
    attributes |= {"direction": "bidirectional"} if ways == 2 else {}
    attributes |= {"linear_before_reset": 1} if kind == "GRU" else {}
    check_node(
        kind, operands(kind, ways, biased=biased), attributes, outputs=outputs(kind),
        torch=expected(kind, ways),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_states(kind: str) -> None:
    attributes = {"hidden_size": H, **({"linear_before_reset": 1} if kind == "GRU" else {})}
    check_node(
        kind, operands(kind, states=True), attributes, outputs=outputs(kind),
        torch=expected(kind, 1),
    )  # fmt: skip


@pytest.mark.parametrize("cotangents", [["y0"], ["y1"], ["y2"]])
def test_results_that_nothing_depends_on(cotangents: list[str]) -> None:
    check_node(
        "LSTM", operands("LSTM", states=True), {"hidden_size": H}, outputs=3,
        torch=expected("LSTM", 1), cotangents=cotangents,
    )  # fmt: skip


@pytest.mark.parametrize("biased", [False, True])
def test_a_gru_that_resets_first(biased: bool) -> None:
    check_node("GRU", operands("GRU", biased=biased, states=True), {"hidden_size": H}, outputs=2)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_in_reverse(kind: str) -> None:
    attributes = {"hidden_size": H, "direction": "reverse"}
    check_node(kind, operands(kind, states=True), attributes, outputs=outputs(kind))


def test_other_activations() -> None:
    check_node(
        "RNN", operands("RNN"), {"hidden_size": H, "activations": ["Relu"]}, outputs=2,
        torch=expected("RNN", 1, "relu"),
    )  # fmt: skip
    names = ["Sigmoid", "Relu", "Sigmoid"]
    check_node("LSTM", operands("LSTM"), {"hidden_size": H, "activations": names}, outputs=3)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_batches_first(kind: str) -> None:
    """ONNX Runtime has no kernel with batches first: the other layout is what it ought to be."""
    first, last = (
        Vjp(node_model(kind, operands(kind, states=True, layout=layout),
                       {"hidden_size": H, "layout": layout}, outputs=outputs(kind)))
        for layout in (1, 0)
    )  # fmt: skip
    given = {f"x{i}": o for i, o in enumerate(operands(kind, states=True)) if o is not None}
    axes = {"x0": (1, 0, 2), "x5": (1, 0, 2), "x6": (1, 0, 2)}
    back = {"y0": (1, 2, 0, 3), "y1": (1, 0, 2), "y2": (1, 0, 2)}
    weights = {n: normal(*last.session.get_outputs()[i].shape, seed=i)
               for i, n in enumerate(last.weighted)}  # fmt: skip
    a = last.run(given, weights)
    turn = {n: np.transpose(x, (2, 0, 1, 3) if n == "y0" else (1, 0, 2))
            for n, x in weights.items()}  # fmt: skip
    b = first.run({n: np.transpose(x, axes.get(n, range(x.ndim))) for n, x in given.items()}, turn)
    for name, whole in a.outputs.items():
        np.testing.assert_allclose(np.transpose(b.outputs[name], back[name]), whole, rtol=1e-9)
    for name, dx in a.gradients.items():
        assert dx is not None
        turned = np.transpose(b.gradients[name], axes.get(name, range(dx.ndim)))
        np.testing.assert_allclose(turned, dx, rtol=1e-9)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_sequences_that_end_early(kind: str, direction: str) -> None:
    held = operands(kind, 2 if direction == "bidirectional" else 1, states=True)
    held[4] = np.array([4, 1, 3], np.int32)
    attributes = {"hidden_size": H, "direction": direction}
    check_node(kind, held, attributes, outputs=outputs(kind))


def test_lengths_that_are_all_full_cost_nothing() -> None:
    held = operands("LSTM", states=True)
    held[4] = np.full(B, T, np.int32)
    attributes = {"hidden_size": H}
    vjp = check_node("LSTM", held, attributes, outputs=3, literals={4}, torch=expected("LSTM", 1))
    assert "Where" not in vjp.ops


@pytest.mark.parametrize("lengths", [None, np.array([4, 1, 3], np.int32)])
@pytest.mark.parametrize("ways", [1, 2])
def test_peepholes(ways: int, lengths: Any) -> None:
    held = [*operands("LSTM", ways, states=True), normal(ways, 3 * H, seed=6)]
    held[4] = lengths
    attributes = {"hidden_size": H, "direction": "forward" if ways == 1 else "bidirectional"}
    check_node("LSTM", held, attributes, outputs=3)


def test_weights_have_one_product_each() -> None:
    vjp = Vjp(node_model("LSTM", operands("LSTM"), {"hidden_size": H}, outputs=3))
    forward, backward = 1 + T, 2 + T + 1  # input and steps; input and its weight, steps, weight
    assert vjp.ops.count("Einsum") == forward + backward - 1


@pytest.mark.parametrize(
    ("kind", "attributes", "extra", "text"),
    [
        ("GRU", {"clip": 1.0}, [], "it has the attribute clip"),
        ("RNN", {"activations": ["Elu"]}, [], "activation Elu, expected one of Sigmoid, Tanh"),
    ],
)
def test_what_has_no_gradient(kind: str, attributes: Any, extra: list[Any], text: str) -> None:
    held = [*operands(kind), *extra]
    with pytest.raises(UserError, match=text):
        Vjp(node_model(kind, held, {"hidden_size": H, **attributes}, outputs=outputs(kind)))

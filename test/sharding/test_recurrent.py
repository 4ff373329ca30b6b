"""Recurrent networks: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def network(
    name: str, *, batch: int = 4, directions: int = 1, bias: bool = True, lengths: bool = False,
    state: bool = False, peepholes: bool = False, results: int = 1, **attributes: Any,
) -> Case:  # fmt: skip
    """Return a network of 5 hidden units over 3 steps of 2 features."""
    gates, hidden, starts = GATES[name], 5, normal(directions, batch, 5, seed=4)
    operands = [
        normal(3, batch, 2),
        normal(directions, gates * hidden, 2, seed=1),
        normal(directions, gates * hidden, hidden, seed=2),
        normal(directions, 2 * gates * hidden, seed=3) if bias else None,
        (np.arange(batch) % 3 + 1).astype(np.int32) if lengths else None,
        starts if state else None,
    ]
    if name == "LSTM":
        operands += [starts + 1 if state else None]
        operands += [normal(directions, 3 * hidden, seed=6) if peepholes else None]
    way = "bidirectional" if directions == 2 else "forward"
    attributes |= {"hidden_size": hidden, "direction": way}
    return Case(name, operands, attributes, 14, results=(True,) * results)


def test_sequences_of_a_batch_are_independent() -> None:
    case = network("LSTM", lengths=True, state=True, peepholes=True, results=3)
    assert offered(case) == {
        "R R R R R R R R -> R R R",
        "S(1) R R R S(0) S(1) S(1) R -> S(2) S(1) S(1)",
    }


def test_directions_are_independent() -> None:
    case = network("LSTM", directions=2, state=True, peepholes=True, results=3)
    assert offered(case) == {
        "R R R R R R R R -> R R R",
        "S(1) R R R R S(1) S(1) R -> S(2) S(1) S(1)",
        "R S(0) S(0) S(0) R S(0) S(0) S(0) -> S(1) S(0) S(0)",
    }


def test_directions_of_their_own_activations_stay_together() -> None:
    names = ["Sigmoid", "LeakyRelu"]
    same = network("GRU", directions=2, activations=names * 2, activation_alpha=[0.1, 0.1])
    other = network("GRU", directions=2, activations=names * 2, activation_alpha=[0.1, 0.2])
    assert len(offered(same)) == len(offered(other)) + 1
    check(same, (2,))


@examples(40)
@given(
    mesh=st.sampled_from(MESHES),
    name=st.sampled_from(sorted(GATES)),
    batch=st.sampled_from([1, 2, 4, 6]),
    directions=st.sampled_from([1, 2]),
    bias=st.booleans(),
    lengths=st.booleans(),
    state=st.booleans(),
    peepholes=st.booleans(),
    results=st.sampled_from([1, 2]),
)
def test_any_network(
    mesh: tuple[int, ...], name: str, batch: int, directions: int, bias: bool, lengths: bool,
    state: bool, peepholes: bool, results: int,
) -> None:  # fmt: skip
    case = network(
        name, batch=batch, directions=directions, bias=bias, lengths=lengths, state=state,
        peepholes=peepholes, results=results,
    )  # fmt: skip
    check(case, mesh)


@pytest.mark.parametrize("name", sorted(GATES))
def test_work(name: str) -> None:
    report = check(network(name, directions=2), (2,))
    assert report.flops == 2 * 3 * 4 * 2 * GATES[name] * 5 * (2 + 5)

"""Linear attention and the operators around it: every strategy is right, and those are offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sharding.harness import Case, check, normal, offered

from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (3,), (4,), (2, 2)]
RUNTIME = "com.microsoft"
BATCH, TOKENS, KEY, VALUE = 2, 5, 8, 6


def attention(queries: int, shared: int, rule: str = "gated_delta", *, each: bool = False) -> Case:
    """Return a case of heads of 8 elements in queries and keys and 6 in values.

    ``each`` element of a key decays by itself, and all heads share an update rate.
    """
    decay = -np.abs(normal(BATCH, TOKENS, shared * (KEY if each else 1)))
    rate = np.abs(normal(BATCH, TOKENS, 1 if each else shared)) % 1
    operands = [
        normal(BATCH, TOKENS, queries * KEY) * 0.3,
        normal(BATCH, TOKENS, shared * KEY, seed=1) * 0.3,
        normal(BATCH, TOKENS, shared * VALUE, seed=2),
        normal(BATCH, shared, KEY, VALUE, seed=3),
        decay if "gated" in rule else None,
        *([rate] if "delta" in rule else []),
    ]
    attributes = {"q_num_heads": queries, "kv_num_heads": shared, "update_rule": rule}
    return Case("LinearAttention", operands, attributes, 1, RUNTIME, results=(True, True))


def test_states_split_by_batch_and_heads() -> None:
    assert offered(attention(4, 4)) == {
        "R R R R R R -> R R",
        "S(0) S(0) S(0) S(0) S(0) S(0) -> S(0) S(0)",
        "S(2) S(2) S(2) S(1) S(2) S(2) -> S(2) S(1)",
    }


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("heads", [(4, 4), (8, 4), (4, 8), (3, 6)])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_any_recurrence(mesh: tuple[int, ...], heads: tuple[int, int], rule: str) -> None:
    check(attention(*heads, rule), mesh)


@pytest.mark.parametrize(
    ("name", "attributes", "shapes", "results"),
    [
        ("LinearAttention", (("kv_num_heads", 4), ("q_num_heads", 4)), [(2, 5, 32)] * 3,
         [(2, 5, 32), (2, 4, 8, 8)]),
        ("CausalConvWithState", (), [(2, 8, 5), (8, 1, 4)], [(2, 8, 5), (2, 8, 3)]),
    ],
)  # fmt: skip
def test_operators_of_opset_27_split_alike(
    name: str, attributes: Any, shapes: list[tuple[int, ...]], results: list[tuple[int, ...]]
) -> None:
    """The tests of the standard prove them: ONNX Runtime expands them into other operators."""
    ends = [tuple(TensorInfo(s, "float32", 4) for s in own) for own in (shapes, results)]
    found = [
        strategies(rule_for(OpInfo(op, version, *ends, attributes)), Mesh((2,)))
        for op, version in ((name, 27), (f"{RUNTIME}.{name}", 1))
    ]
    assert len(found[0]) == 3
    assert found[0] == found[1]


def test_a_shared_update_rate_is_whole() -> None:
    assert "S(2) S(2) S(2) S(1) S(2) R -> S(2) S(1)" in offered(attention(4, 4, each=True))


def test_windows_of_states_are_not_proved() -> None:
    tensors = [TensorInfo((2, 5, 32), "float32", 4)] * 3
    attributes = (("kv_num_heads", 4), ("q_num_heads", 4), ("state_window", 2))
    for name in ("LinearAttention", "CausalConvWithState"):
        info = OpInfo(f"{RUNTIME}.{name}", 1, (*tensors,), (*tensors[:2],), attributes)
        assert len(strategies(rule_for(info), Mesh((2,)))) == 1


def test_work() -> None:
    assert check(attention(8, 4), (2,)).flops == 7 * BATCH * TOKENS * 8 * KEY * VALUE
    assert check(convolution(8), (2,)).flops == 2 * 2 * 8 * TOKENS * 4


def convolution(channels: int, *, last: bool = False, state: bool = True) -> Case:
    def place(size: int) -> Any:
        x = normal(2, channels, size)
        return np.ascontiguousarray(np.moveaxis(x, 1, 2)) if last else x

    operands = [place(TOKENS), normal(channels, 1, 4), normal(channels)]
    operands += [place(3)] if state else []
    attributes = {"activation": "silu", "channels_last": int(last)}
    return Case("CausalConvWithState", operands, attributes, 1, RUNTIME, results=(True, True))


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("state", [False, True])
def test_causal_convolutions_split_batch_and_channels(
    mesh: tuple[int, ...], last: bool, state: bool
) -> None:
    found = check(convolution(8, last=last, state=state), mesh).offered
    channel, own = 2 if last else 1, f" S({2 if last else 1})" if state else ""
    if mesh == (2,):
        assert f"S({channel}) S(0) S(0){own} -> S({channel}) S({channel})" in found
        assert f"S(0) R R{' S(0)' if state else ''} -> S(0) S(0)" in found
    check(convolution(7, last=last, state=state), mesh)


def test_several_last_channels_are_whole() -> None:
    operands = [normal(2, 5, 4, 2), normal(8, 1, 4), normal(8)]
    attributes = {"channels_last": 1}
    case = Case("CausalConvWithState", operands, attributes, 1, RUNTIME, results=(True, True))
    assert offered(case) == {"R R R -> R R", "S(0) R R -> S(0) S(0)"}


@pytest.mark.parametrize("mesh", MESHES)
def test_gated_norms_split_rows_and_heads(mesh: tuple[int, ...]) -> None:
    heads = Case(
        "GatedRMSNorm", [normal(2, 5, 24), normal(6), normal(2, 5, 24, seed=1)], {}, 1, RUNTIME
    )
    found = check(heads, mesh).offered
    assert mesh != (2,) or "S(2) R S(2) -> S(2)" in found
    one = Case("GatedRMSNorm", [normal(4, 6), normal(6), normal(4, 6, seed=1)], {}, 1, RUNTIME)
    assert "S(1) R S(1) -> S(1)" not in check(one, mesh).offered


def test_gates_split_as_elements_do() -> None:
    gate = [normal(2, 5, 8), normal(8), normal(8, seed=1), normal(2, 5, 8, seed=2)]
    found = offered(Case("LinearAttentionGate", gate, {}, 1, RUNTIME, results=(True, True)))
    assert {"S(0) R R S(0) -> S(0) S(0)", "S(2) S(0) S(0) S(2) -> S(2) S(2)"} <= found
    added = [normal(2, 6), normal(2, 6, seed=1), normal(2, 1)]
    assert {"S(0) S(0) S(0) -> S(0)", "S(1) S(1) R -> S(1)"} <= offered(
        Case("GatedAdd", added, {}, 1, RUNTIME)
    )
    scaled = [normal(2, 6), np.array(1.3, np.float32)]
    assert "S(1) R -> S(1)" in offered(Case("ScaledSiLU", scaled, {}, 1, RUNTIME))


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("shape", [(2, 5, 32), (2, 4, 5, 8)])
def test_rotations_by_three_positions(
    mesh: tuple[int, ...], layout: int, shape: tuple[int, ...]
) -> None:
    places = np.random.default_rng(0).integers(0, 9, (3, 2, 5))
    attributes = {"mrope_section": [2, 1, 1], "mrope_layout": layout}
    attributes |= {"num_heads": 4, "rotary_embedding_dim": 8} if len(shape) == 3 else {}
    operands = [normal(*shape), places, normal(9, 4), normal(9, 4, seed=1)]
    found = check(Case("MRotaryEmbedding", operands, attributes, 1, RUNTIME), mesh).offered
    if mesh == (2,):
        assert {"S(0) S(1) R R -> S(0)", f"S({5 - len(shape)}) R R R -> S({5 - len(shape)})"} <= (
            found
        )

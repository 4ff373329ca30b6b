"""Attention by a kernel with split keys: terms of a sum, and keys that travel."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from attention_reference import Case as Attention
from attention_reference import Options, integers, operands, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sharding.harness import Case, check, local_functions, memory_of, offered

from tensoropt.compiler.cost.compute import work_of
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.cost.nodes import inner_steps
from tensoropt.compiler.cost.overlap import Overlap
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.sharding.ops.attention_parts import KEYS, ROWS
from tensoropt.runtime.layout.mesh import Mesh

_CAUSAL = Attention(2, 2, 2, 16, 16, 2, 3, Options(causal=True))
_BIASED = replace(_CAUSAL, bias=(True, False, True), options=Options())
_EXAMPLES = {
    "all keys": replace(_CAUSAL, options=Options()),
    "causal": _CAUSAL,
    "lengths": replace(_CAUSAL, lengths=(9, 16)),
    "bias": _BIASED,
    "bias of keys": replace(_BIASED, bias=(True, True, False)),
    "dropout": replace(_CAUSAL, options=Options(), ratio=0.3),
    "causal with dropout": replace(_CAUSAL, ratio=0.3),
}


def cases(attention: Attention, *, trained: bool = False) -> tuple[Case, Case]:
    """Return an attention and its gradient, with the results of PyTorch in float64.

    A bias has a gradient if it is ``trained``.
    """
    tensors = operands(attention)
    y, lse, gradients = reference(attention, tensors)
    read = [tensors[name].numpy() for name in "qkv"]
    bias = tensors["bias"].numpy() if attention.bias is not None else None
    others = [bias, *integers(attention).values()]
    while others and others[-1] is None:
        others.pop()
    wanted = [gradients[name] for name in gradients if name != "bias" or trained]
    expected = [x.to(torch.float32).numpy() for x in (y, lse, *wanted)]
    attributes = attention.attributes()
    forward = Case(
        "Attention", [*read, *others], attributes, 1, "tensoropt", results=(True, True),
        expected=expected[:2],
    )  # fmt: skip
    backward = Case(
        "AttentionGradient", [tensors["dy"].numpy(), *read, *expected[:2], *others], attributes, 1,
        "tensoropt", results=(True,) * len(wanted), expected=expected[2:],
    )  # fmt: skip
    return forward, backward


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    """Draw an attention with any combination of what hides keys."""
    causal, has_window = draw(st.booleans()), draw(st.booleans())
    rows = draw(st.sampled_from((4, 8, 12)))
    keys = rows if draw(st.booleans()) else draw(st.sampled_from((4, 8, 16)))
    options = Options(
        causal=causal,
        window=draw(st.integers(1, 6)) if has_window else 0,
        softcap=draw(st.sampled_from((0.0, 1.5))),
        offset=draw(st.integers(-3, 5)) if causal or has_window else 0,
    )
    heads, group = draw(st.sampled_from(((1, 1), (2, 1), (2, 2), (1, 4))))
    shape = st.one_of(st.none(), st.tuples(st.booleans(), st.booleans(), st.booleans()))
    bias = draw(shape)
    lengths = tuple(draw(st.integers(0, keys)) for _ in range(2)) if draw(st.booleans()) else None
    is_masked = bias is not None and draw(st.booleans())
    ratio = draw(st.sampled_from((0.0, 0.25)))
    sizes = (2, heads, group, rows, keys, 2, 3)
    return Attention(*sizes, options, bias, lengths, is_masked, ratio=ratio)


@given(attentions(), st.sampled_from(((2,), (4,), (2, 2))))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_every_split_computes_what_pytorch_does(
    attention: Attention, mesh: tuple[int, ...]
) -> None:
    for case in cases(attention):
        check(case, mesh, opens=False)


@pytest.mark.parametrize("name", _EXAMPLES)
@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_keys_are_split_alone_and_with_rows(name: str, mesh: tuple[int, ...]) -> None:
    rows = ",".join(["S(2)"] * len(mesh))
    whole, terms = (",".join([text] * len(mesh)) for text in ("R", "P(sum)"))
    forward, backward = cases(_EXAMPLES[name])
    found = offered(forward, mesh)
    assert any(text.startswith(f"{rows} {rows} {rows}") for text in found)
    assert any(
        text.startswith(f"{whole} {rows} {rows}") and text.endswith(f"-> {terms} {whole}")
        for text in found
    )
    found = offered(backward, mesh)
    assert any(text.endswith(f"-> {rows} {rows} {rows}") for text in found)
    assert any(text.endswith(f"-> {terms} {rows} {rows}") for text in found)


def test_rows_travel_on_no_other_axis_than_keys() -> None:
    roles = [strategy.roles for strategy in check(cases(_CAUSAL)[0], (2, 2)).tried]
    assert any(ROWS in own and KEYS in own for own in roles)
    joint = [own for own in roles if any(not isinstance(role, int | None) for role in own)]
    assert joint
    assert not any(ROWS in own or KEYS in own for own in joint)


def test_keys_of_a_trained_bias_and_of_another_sequence_do_not_travel() -> None:
    for attention, trained in ((_BIASED, True), (replace(_CAUSAL, keys=32), False)):
        text = offered(cases(attention, trained=trained)[1])
        assert not any("S(2) S(2) S(2) S(2) S(2) S(2)" in own for own in text)
        assert any(own.startswith("R R S(2) S(2) R R") for own in text)


@pytest.mark.parametrize("name", _EXAMPLES)
def test_all_messages_are_priced(name: str) -> None:
    mesh = (4,)
    for case in cases(_EXAMPLES[name]):
        report = check(case, mesh)
        for strategy, text in zip(report.tried, local_functions(case, mesh), strict=True):
            kinds = [kind for kind, *_ in report.rule.inner_steps(strategy, Mesh(mesh))]
            for kind in ("collective_permute", "all_reduce", "all_gather"):
                assert kinds.count(kind) == text.count(f".{kind}"), f"{kind} in {text}"


@pytest.mark.parametrize("causal", [False, True])
def test_memory_is_that_of_live_tensors(causal: bool) -> None:
    attention = Attention(1, 1, 4, 512, 512, 32, 32, Options(causal=causal))
    for case in cases(attention):
        for predicted, live in memory_of(case, 4, factor=KEYS):
            assert predicted == pytest.approx(live, rel=0.1)


def _joint(strategy: Strategy) -> bool:
    return bool(strategy.joint_axes)


@pytest.mark.parametrize(("name", "rows", "ring"), [("causal", 1.75, 1.0), ("all keys", 1.0, 1.0)])
def test_the_busiest_rank_sets_the_time(name: str, rows: float, ring: float) -> None:
    report = check(cases(_EXAMPLES[name])[0], (4,))
    shares = {
        strategy.roles: 4 * work_of(report.info, report.rule, strategy, Mesh((4,))).flops
        for strategy in report.tried
    }
    assert shares[ROWS,] == shares[KEYS,] == pytest.approx(rows * report.flops)
    (travelling,) = (own for own in report.tried if _joint(own))
    assert shares[travelling.roles] == pytest.approx(ring * report.flops)


def test_parts_that_stay_in_their_places_have_unequal_work() -> None:
    report = check(cases(_EXAMPLES["lengths"])[0], (4,))
    (travelling,) = (own for own in report.tried if _joint(own))
    work = work_of(report.info, report.rule, travelling, Mesh((4,)))
    assert 4 * work.flops == pytest.approx(1.75 * report.flops)


def test_turns_hide_the_messages_of_a_ring() -> None:
    report, mesh = check(cases(_EXAMPLES["all keys"])[0], (4,)), Mesh((4,))
    (travelling,) = (own for own in report.tried if _joint(own))

    def sent_s(overlap: Overlap | None, flop_per_s: float) -> float:
        device = replace(
            load_device("cpu"), overlap=overlap, operators={}, peaks=(("float32", flop_per_s),)
        )
        steps = inner_steps(report.info, report.rule, travelling, mesh, device, lambda _: False)
        return sum(time_s for kind, *_, time_s in steps if kind == "collective_permute")

    plain_s = sent_s(None, 1e9)
    assert sent_s(Overlap(0.0, 0.25), 1.0) == pytest.approx(plain_s / 4)  # all are hidden
    assert plain_s / 4 < sent_s(Overlap(0.0, 0.25), 1e9) < plain_s
    assert sent_s(Overlap(1.0, 0.0), 1.0) == plain_s  # starts take longer than messages

"""Conv and ConvTranspose: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2)]
ODD_3X3 = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def test_conv_offers_batch_and_both_channels() -> None:
    case = Case("Conv", [normal(2, 4, 5, 5), normal(6, 4, 3, 3), normal(6)], ODD_3X3)
    assert offered(case) == {
        "R R R -> R",
        "S(0) R R -> S(0)",
        "R S(0) S(0) -> S(1)",
        "S(1) S(1) P(sum) -> P(sum)",
        "P(sum) R P(sum) -> P(sum)",
        "R P(sum) P(sum) -> P(sum)",
    }


def test_conv_splits_space_with_halos() -> None:
    case = Case("Conv", [normal(2, 4, 6, 6), normal(6, 4, 3, 3), normal(6)], ODD_3X3)
    both = {"S(2) R R -> S(2)", "S(3) R R -> S(3)"}
    assert _space(offered(case)) == both
    assert _space(offered(case, (3,))) == both
    found = offered(case, (2, 3))
    assert {f"S({a}),S({b}) R,R R,R -> S({a}),S({b})" for a in (2, 3) for b in (2, 3)} <= found


def _space(found: set[str]) -> set[str]:
    return {text for text in found if "S(2)" in text or "S(3)" in text}


def test_conv_without_bias() -> None:
    found = offered(Case("Conv", [normal(2, 4, 5, 5), normal(6, 4, 3, 3)], ODD_3X3))
    assert "S(1) S(1) -> P(sum)" in found
    assert "P(sum) R -> P(sum)" in found


def test_depthwise_conv_splits_its_groups_on_all_operands() -> None:
    case = Case(
        "Conv", [normal(2, 4, 5, 5), normal(4, 1, 3, 3), normal(4)], {**ODD_3X3, "group": 4}
    )
    assert offered(case) == {
        "R R R -> R",
        "S(0) R R -> S(0)",
        "S(1) S(0) S(0) -> S(1)",
        "P(sum) R P(sum) -> P(sum)",
        "R P(sum) P(sum) -> P(sum)",
    }


@pytest.mark.parametrize(("groups", "splits"), [(2, True), (3, False), (4, True)])
def test_groups_are_split_as_wholes(groups: int, splits: bool) -> None:
    case = Case("Conv", [normal(1, 12, 5), normal(24, 12 // groups, 3)], {"group": groups})
    assert ("S(1) S(0) -> S(1)" in offered(case)) == splits


def test_inputs_are_split_within_every_group() -> None:
    """The image is whole: the inputs of a part, of each group some, do not lie side by side."""
    odd = Case("Conv", [normal(1, 12, 5), normal(6, 4, 3), normal(6)], {"group": 3})
    report = check(odd, (2,))
    assert "R S(1) P(sum) -> P(sum)" in report.offered
    (own,) = (one for one in report.tried if one.operands[1].texts == ["S(1)"])
    half = 12 * 5 * 4 // 2
    assert report.rule.inner_steps(own, Mesh((2,))) == [("copy", (0,), half)]
    even = Case("Conv", [normal(1, 8, 5), normal(8, 4, 3)], {"group": 2})
    assert "S(1),R S(0),S(1) -> S(1),P(sum)" in offered(even, (2, 2))
    image, weight = (
        np.arange(n).reshape(shape) % 200 for n, shape in ((60, (1, 12, 5)), (72, (6, 4, 3)))
    )
    whole = Case("ConvInteger", [image.astype(np.uint8), weight.astype(np.uint8)], {"group": 3}, 10)
    assert "R S(1) -> P(sum)" in offered(whole)


def test_outputs_are_split_within_every_group_if_the_groups_do_not_divide() -> None:
    """Each group is a block; the result has a piece of every block."""
    attributes = {"group": 3}
    case = Case("Conv", [normal(1, 12, 5), normal(24, 4, 3), normal(24)], attributes)
    for mesh in ((2,), (4,)):
        found = offered(case, mesh)
        assert {text for text in found if "of" in text} == {"R S(0 of 3) S(0 of 3) -> S(1 of 3)"}
        assert not any(text.startswith("S(1)") for text in found)
    assert not any("of" in text for text in offered(case, (3,)))
    two = offered(case, (2, 2))
    assert {
        "R,R S(0 of 3),S(0 of 3) S(0 of 3),S(0 of 3) -> S(1 of 3),S(1 of 3)",
        "R,R S(0 of 3),S(1) S(0 of 3),P(sum) -> S(1 of 3),P(sum)",
    } <= two
    transposed = Case("ConvTranspose", [normal(1, 12, 5), normal(12, 8, 3), normal(24)], attributes)
    assert {text for text in offered(transposed) if "of" in text} == {
        "R S(1) S(0 of 3) -> S(1 of 3)",
        "S(1 of 3) S(0 of 3) P(sum) -> P(sum)",
    }


def test_channels_are_split_within_the_one_group_of_a_rank() -> None:
    """Parts are contiguous if each rank has one group by the axes before."""
    attributes, bias = {"group": 2}, normal(16)
    case = Case("Conv", [normal(1, 8, 5), normal(16, 4, 3), bias], attributes)
    for mesh in ((2, 2), (2, 4), (2, 3)):
        found = offered(case, mesh)
        assert ("S(1),R S(0),S(0) S(0),S(0) -> S(1),S(1)" in found) == (mesh != (2, 3))
    transposed = Case("ConvTranspose", [normal(1, 8, 5), normal(8, 8, 3), bias], attributes)
    assert {
        "S(1),R S(0),S(1) S(0),S(0) -> S(1),S(1)",
        "S(1),S(1) S(0),S(0) S(0),P(sum) -> S(1),P(sum)",
    } <= offered(transposed, (2, 2))


def test_copies_and_work_within_groups_are_those_of_a_part() -> None:
    image, attributes = normal(1, 12, 6, 5), {"group": 3, "strides": [1, 1]}
    case = Case("Conv", [image, normal(24, 4, 1, 1)], attributes)
    report = check(case, (2,))
    assert report.flops == 2 * 24 * 4 * 30
    (own,) = (one for one in report.tried if one.results[0].has_blocks)
    assert report.rule.inner_steps(own, Mesh((2,))) == []


@examples(20)
@given(
    mesh=st.sampled_from([(2,), (3,), (4,), (2, 2), (3, 2), (2, 3)]),
    groups=st.sampled_from([2, 3, 5]),
    outputs=st.sampled_from([2, 4, 6]),
    name=st.sampled_from(["Conv", "ConvTranspose", "FusedConv", "ConvInteger", "QLinearConv"]),
    one_scale=st.booleans(),
)
def test_any_channels_within_groups(
    mesh: tuple[int, ...], groups: int, outputs: int, name: str, one_scale: bool
) -> None:
    check(_grouped(name, groups, outputs, one_scale), mesh)


def _grouped(name: str, groups: int, outputs: int, one_scale: bool) -> Case:
    """Return a convolution with two inputs in each group."""
    inputs, made = 2 * groups, outputs * groups
    attributes: dict[str, object] = {"group": groups}
    if name == "FusedConv":
        attributes["activation"] = "Relu"
        operands = [normal(1, inputs, 4, 4), normal(made, 2, 3, 3), normal(made)]
        return Case(name, [*operands, normal(1, made, 2, 2)], attributes, 1, "com.microsoft")
    weight = (inputs, outputs, 3) if name == "ConvTranspose" else (made, 2, 3)
    if name in ("Conv", "ConvTranspose"):
        return Case(name, [normal(1, inputs, 4), normal(*weight), normal(made)], attributes)
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 100, shape).astype(np.uint8) for shape in ((1, inputs, 4), weight))
    scale, zero = np.array(0.25, np.float32), np.array(7, np.uint8)
    if name == "ConvInteger":
        return Case(name, [x, w, zero, zero], attributes, 10)
    each = () if one_scale else (made,)
    scales, zeros = np.full(each, 0.5, np.float32), np.full(each, 3, np.uint8)
    bias = rng.integers(0, 9, made).astype(np.int32)
    return Case(
        name,
        [x, scale, zero, w, scales, zeros, np.array(9, np.float32), zero, bias],
        attributes,
        10,
    )


def test_pointwise_conv_splits_space() -> None:
    found = offered(Case("Conv", [normal(1, 4, 4, 6), normal(6, 4, 1, 1)]))
    assert {"S(2) R -> S(2)", "S(3) R -> S(3)"} <= found


def test_patches_that_tile_the_image_split_space() -> None:
    image, weight = normal(1, 3, 16, 12), normal(8, 3, 4, 4)
    found = offered(Case("Conv", [image, weight], {"strides": [4, 4]}))
    assert "S(2) R -> S(2)" in found
    assert "S(3) R -> S(3)" not in found  # three patches
    same = offered(Case("Conv", [image, weight], {"strides": [4, 4], "auto_pad": "SAME_UPPER"}))
    assert same == found


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [0, 1]},
        {"pads": [2, 1]},
        {"strides": [2]},
        {"strides": [3], "pads": [1, 0]},
        {"dilations": [2]},
    ],
)
def test_fewer_windows_than_strides_keep_space_whole(attributes: dict[str, object]) -> None:
    assert not _space(offered(Case("Conv", [normal(1, 2, 8), normal(2, 2, 3)], attributes)))


def test_a_part_is_as_long_as_its_neighbours_halo() -> None:
    wide = Case("Conv", [normal(1, 2, 8), normal(2, 2, 7)], {"auto_pad": "SAME_UPPER"})
    assert _space(offered(wide)) == {"S(2) R -> S(2)"}
    assert not _space(offered(wide, (4,)))


@examples(40)
@given(
    mesh=st.sampled_from(MESHES),
    taps=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    lean=st.integers(0, 4),
    groups=st.sampled_from([1, 2]),
    op_type=st.sampled_from(["Conv", "FusedConv"]),
    version=st.sampled_from([9, 20]),
)
def test_any_halo(
    mesh: tuple[int, ...],
    taps: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    lean: int,
    groups: int,
    op_type: str,
    version: int,
) -> None:
    """Padding is such that there are as many windows as strides, and leans to either side."""
    sizes = [8 * step for step in stride]
    rows = zip(taps, stride, dilation, strict=True)
    totals = [max(0, (k - 1) * gap + 1 - step) for k, step, gap in rows]
    begins = [min(total, lean) for total in totals]
    attributes = {
        "pads": begins + [t - b for t, b in zip(totals, begins, strict=True)],
        "strides": stride,
        "dilations": dilation,
        "group": groups,
    }
    operands = [normal(2, 4, *sizes), normal(4, 4 // groups, *taps), normal(4)]
    if op_type == "Conv":
        case = Case("Conv", operands, attributes, version)
    else:
        attributes["activation"] = "Relu"
        case = Case("FusedConv", operands, attributes, 1, "com.microsoft")
    found = check(case, mesh).offered
    for dim, (begin, total, step) in enumerate(zip(begins, totals, stride, strict=True), 2):
        fits = max(begin, total - begin) <= 8 * step // mesh[0]
        assert any(text.startswith(f"S({dim})") for text in found) == fits


def test_halos_are_priced() -> None:
    operands = [normal(2, 4, 16, 8), normal(6, 2, 5, 5)]
    case = Case("Conv", operands, {"pads": [1, 2, 3, 2], "group": 2})
    mesh, report = Mesh((2, 2)), check(case, (2, 2))
    priced = {",".join(s.operands[0].texts): report.rule.inner_steps(s, mesh) for s in report.tried}
    sent = {key: [step for step in found if step[0] != "copy"] for key, found in priced.items()}
    copies = [size for kind, _, size in priced["S(2),R"] if kind == "copy"]
    row = 2 * 4 * 8 * 4  # images, channels, the other dimension, bytes of an element
    column = 2 * row
    assert priced["R,R"] == priced["S(0),R"] == []
    assert sent["S(2),R"] == [("collective_permute", (0,), 3 * row)]  # 1 above, 3 below
    assert sent["S(2),S(2)"] == [("collective_permute", (0, 1), 3 * row)] * 2
    assert sent["S(0),S(2)"] == sent["S(1),S(2)"] == [("collective_permute", (1,), 3 * row // 2)]
    assert sent["S(2),S(3)"] == [
        ("collective_permute", (0,), 3 * row // 2),
        ("collective_permute", (1,), 2 * column // 2),
    ]
    assert copies == [4 * row, 4 * row, row, 3 * row, 8 * row]  # the last is half the image


def test_a_strided_window_with_gaps_splits_space() -> None:
    found = offered(Case("Conv", [normal(1, 2, 8), normal(2, 2, 1)], {"strides": [2]}))
    assert "S(2) R -> S(2)" in found


@examples(30)
@given(
    mesh=st.sampled_from(MESHES),
    rank=st.integers(1, 3),
    groups=st.sampled_from([1, 2, 4]),
    per_group=st.tuples(*[st.sampled_from([1, 2, 4])] * 2),
    kernel=st.sampled_from([1, 2, 3]),
    stride=st.sampled_from([1, 2]),
    padding=st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", "pads"]),
    bias=st.booleans(),
    transposed=st.booleans(),
)
def test_convolutions_of_any_shape(
    mesh: tuple[int, ...],
    rank: int,
    groups: int,
    per_group: tuple[int, int],
    kernel: int,
    stride: int,
    padding: str,
    bias: bool,
    transposed: bool,
) -> None:
    inputs, outputs = (groups * size for size in per_group)
    leading = (inputs, per_group[1]) if transposed else (outputs, per_group[0])
    operands = [normal(2, inputs, *[4] * rank), normal(*leading, *[kernel] * rank)]
    operands += [normal(outputs)] if bias else []
    attributes: dict[str, object] = {"group": groups, "strides": [stride] * rank}
    attributes |= {"pads": [0, 1] * rank} if padding == "pads" else {"auto_pad": padding}
    check(Case("ConvTranspose" if transposed else "Conv", operands, attributes), mesh)


def test_transpose_offers_batch_and_both_channels() -> None:
    case = Case("ConvTranspose", [normal(2, 4, 5), normal(4, 6, 3), normal(6)], {"strides": [2]})
    assert offered(case) == {
        "R R R -> R",
        "S(0) R R -> S(0)",
        "R S(1) S(0) -> S(1)",
        "S(1) S(0) P(sum) -> P(sum)",
        "P(sum) R P(sum) -> P(sum)",
        "R P(sum) P(sum) -> P(sum)",
    }


def test_transpose_that_tiles_its_result_splits_space() -> None:
    operands = [normal(1, 2, 4), normal(2, 2, 2)]
    assert "S(2) R -> S(2)" in offered(Case("ConvTranspose", operands, {"strides": [2]}))
    shaped = {"strides": [2], "output_shape": [8]}
    assert "S(2) R -> S(2)" not in offered(Case("ConvTranspose", operands, shaped))
    longer = {"strides": [2], "output_padding": [1]}
    assert "S(2) R -> S(2)" not in offered(Case("ConvTranspose", operands, longer))


def test_a_symbolic_batch_is_never_split() -> None:
    hidden = frozenset({(0, 0)})
    case = Case(
        "Conv",
        [normal(2, 4, 5, 5), normal(6, 4, 3, 3)],
        ODD_3X3,
        symbolic=hidden,
        symbolic_results=hidden,
    )
    found = offered(case)
    assert "S(0) R -> S(0)" not in found
    assert "R S(0) -> S(1)" in found


def test_work_is_two_per_multiply_add() -> None:
    image, weight = normal(2, 4, 8, 8), normal(6, 4, 3, 3)
    assert check(Case("Conv", [image, weight], ODD_3X3), (2,)).flops == 2 * 2 * 6 * 4 * 64 * 9
    pointwise = Case("Conv", [image, normal(6, 4, 1, 1)])
    assert check(pointwise, (2,)).flops == 2 * 2 * 6 * 4 * 64
    depthwise = Case("Conv", [image, normal(4, 1, 3, 3)], {**ODD_3X3, "group": 4})
    assert check(depthwise, (2,)).flops == 2 * 2 * 4 * 64 * 9
    grouped = Case("Conv", [image, normal(6, 2, 3, 3)], {**ODD_3X3, "group": 2})
    assert check(grouped, (2,)).flops == 2 * 2 * 6 * 2 * 64 * 9
    transposed = Case("ConvTranspose", [image, normal(4, 6, 2, 2)], {"strides": [2, 2]})
    assert check(transposed, (2,)).flops == 2 * 2 * 4 * 6 * 64 * 4


def deformed(*, groups: int = 1, offsets: int = 1, bias: bool = True, mask: bool = True) -> Case:
    """Return a deformed convolution of 4 channels to 4 over 5x5, windows of 2x2."""
    operands = [
        normal(2, 4, 5, 5),
        normal(4, 4 // groups, 2, 2, seed=1),
        normal(2, offsets * 8, 4, 4, seed=2) / 2,
        normal(4, seed=3) if bias else None,
        normal(2, offsets * 4, 4, 4, seed=4) if mask else None,
    ]
    return Case("DeformConv", operands, {"group": groups, "offset_group": offsets})


def test_deformed_windows_split_batch_and_channels() -> None:
    assert offered(deformed()) == {
        "R R R R R -> R",
        "S(0) R S(0) R S(0) -> S(0)",
        "R S(0) R S(0) R -> S(1)",
        "S(1) S(1) R P(sum) R -> P(sum)",
        "P(sum) R R P(sum) R -> P(sum)",
        "R P(sum) R P(sum) R -> P(sum)",
    }


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2)])
@pytest.mark.parametrize(("groups", "offsets"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("bias", [True, False])
def test_any_deformed_windows(mesh: tuple[int, ...], groups: int, offsets: int, bias: bool) -> None:
    check(deformed(groups=groups, offsets=offsets, bias=bias, mask=not bias), mesh)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("added", [True, False])
def test_a_sum_of_channels_before_an_activation_is_whole(groups: int, added: bool) -> None:
    operands = [normal(2, 4, 6, 6), normal(4, 4 // groups, 3, 3), normal(4)]
    operands += [normal(2, 4, 6, 6, seed=1)] if added else []
    attributes = {"activation": "Relu", "group": groups, "pads": [1] * 4}
    case = Case("FusedConv", operands, attributes, 1, "com.microsoft")
    for mesh in [(2,), (4,), (2, 2)]:
        check(case, mesh)
    found = {text.rpartition(" -> ")[2] for text in offered(case)}
    assert found == {"R", "S(0)", "S(1)", "S(2)", "S(3)"}


@examples(6)
@given(
    mesh=st.sampled_from(MESHES),
    taps=st.tuples(*[st.integers(1, 4)] * 2),
    stride=st.tuples(*[st.integers(1, 3)] * 2),
    dilation=st.tuples(*[st.integers(1, 2)] * 2),
    lean=st.integers(0, 4),
    groups=st.sampled_from([1, 2]),
)
def test_any_halo_of_a_transpose(
    mesh: tuple[int, ...],
    taps: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    lean: int,
    groups: int,
) -> None:
    """Padding, of the output too, makes as many elements per window as the stride."""
    extents = [(k - 1) * gap + 1 for k, gap in zip(taps, dilation, strict=True)]
    totals = [extent - step for extent, step in zip(extents, stride, strict=True)]
    begins = [min(max(total, 0), lean) for total in totals]
    ends = [max(total - begin, 0) for total, begin in zip(totals, begins, strict=True)]
    extras = [max(-total, 0) for total in totals]
    attributes = {"pads": begins + ends, "output_padding": extras, "group": groups}
    attributes |= {"strides": stride, "dilations": dilation}
    operands = [normal(2, 4, 8, 8), normal(4, 4 // groups, *taps), normal(4)]
    found = check(Case("ConvTranspose", operands, attributes), mesh).offered
    rows = zip(extents, begins, stride, strict=True)
    for dim, (extent, begin, step) in enumerate(rows, 2):
        read = max((extent - 1 - begin) // step, -(-begin // step))
        assert any(text.startswith(f"S({dim})") for text in found) == (read <= 8 // mesh[0])


@examples(6)
@given(
    mesh=st.sampled_from(MESHES),
    gaps=st.tuples(*[st.integers(1, 3)] * 2),
    counts=st.tuples(*[st.integers(1, 5)] * 2),
    lean=st.integers(0, 3),
    groups=st.sampled_from([1, 2]),
    shaped=st.booleans(),
)
def test_image_and_window_are_cut_together(
    mesh: tuple[int, ...],
    gaps: tuple[int, int],
    counts: tuple[int, int],
    lean: int,
    groups: int,
    shaped: bool,
) -> None:
    """As in the gradient of a weight, whose window is the gradient of the result."""
    taps, sizes = 8, [8 * gap for gap in gaps]
    totals = [count - gap for count, gap in zip(counts, gaps, strict=True)]
    begins = [min(max(total, 0), lean) for total in totals]
    ends = [max(total - begin, 0) for total, begin in zip(totals, begins, strict=True)]
    attributes = {"pads": begins + ends, "dilations": gaps, "group": groups}
    attributes |= {"kernel_shape": [taps] * 2} if shaped else {}
    operands = [normal(2, 4, *sizes), normal(4, 4 // groups, taps, taps), normal(4)]
    found = check(Case("Conv", operands, attributes), mesh).offered
    for dim, (begin, gap, count) in enumerate(zip(begins, gaps, counts, strict=True), 2):
        made = max(count, gap) - gap + 1  # windows: padding is not cut off
        after = made - 1 - begin
        text = f"S({dim})" if len(mesh) == 1 else f"S({dim}),R"
        fits = -(-max(begin, after, 0) // gap) <= taps // mesh[0]
        partial = any(one.startswith(f"{text} {text} ") for one in found)
        assert partial == fits, (dim, found)

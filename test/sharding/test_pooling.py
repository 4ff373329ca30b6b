"""Pooling: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from budgets import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from sharding.harness import Case, NotRunnableError, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]
OVERLAP = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
TILES = {"kernel_shape": [2, 2], "strides": [2, 2]}


def test_overlapping_windows_split_all() -> None:
    image = normal(2, 4, 8, 8)
    splits = {"R -> R", *(f"S({dim}) -> S({dim})" for dim in range(4))}
    assert offered(Case("MaxPool", [image], OVERLAP)) == splits
    assert offered(Case("LpPool", [image], OVERLAP)) == splits
    assert offered(Case("AveragePool", [image], OVERLAP)) == splits | {"P(sum) -> P(sum)"}


def test_averages_that_count_beyond_padding_keep_space_whole() -> None:
    attributes = {"kernel_shape": [3], "strides": [2], "ceil_mode": 1, "count_include_pad": 1}
    found = offered(Case("AveragePool", [normal(2, 2, 8)], attributes))
    assert "S(2) -> S(2)" not in found


@examples(60)
@given(
    mesh=st.sampled_from(MESHES),
    kind=st.sampled_from(["MaxPool", "AveragePool", "LpPool"]),
    taps=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    lean=st.integers(0, 3),
    short=st.integers(0, 1),
    include_pad=st.integers(0, 1),
    dtype=st.sampled_from(["float32", "float64", "float16", "int8", "uint8"]),  # of maxima
    places=st.booleans(),
)
def test_any_halo(
    mesh: tuple[int, ...],
    kind: str,
    taps: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    lean: int,
    short: int,
    include_pad: int,
    dtype: str,
    places: bool,
) -> None:
    """Padding makes as many windows as strides; where it is ``short``, `ceil_mode` adds one."""
    rows = zip(taps, stride, dilation, strict=True)
    totals = [max(0, (k - 1) * gap + 1 - step) for k, step, gap in rows]
    begins = [min(total, lean, k - 1) for total, k in zip(totals, taps, strict=True)]
    ends = [max(0, t - b - short) for t, b in zip(totals, begins, strict=True)]
    assume(all(end < k for end, k in zip(ends, taps, strict=True)))
    attributes = {"kernel_shape": taps, "strides": stride, "dilations": dilation}
    attributes |= {"pads": begins + ends, "ceil_mode": short}
    if kind == "AveragePool":
        attributes["count_include_pad"] = include_pad
    image = normal(2, 2, *[8 * step for step in stride]) * 50
    image = image.astype(dtype if kind == "MaxPool" else "float32")
    results = (True, True) if kind == "MaxPool" and places else (True,)
    found = check(Case(kind, [image], attributes, results=results), mesh).offered
    ties = len(results) > 1 and "int" in dtype
    for dim, (begin, total, step) in enumerate(zip(begins, totals, stride, strict=True), 2):
        cut = any(text.startswith(f"S({dim})") for text in found)
        assert cut or ties or short or max(begin, total - begin) > 8 * step // mesh[0]


def test_places_of_integers_that_equal_the_fill_keep_space_whole() -> None:
    image, attributes = np.zeros((1, 1, 8), np.uint8), {"kernel_shape": [3], "pads": [1, 1]}
    assert "S(2) -> S(2)" in offered(Case("MaxPool", [image], attributes))
    places = offered(Case("MaxPool", [image], attributes, results=(True, True)))
    assert "S(2) -> S(2) S(2)" not in places


@examples(60)
@given(
    mesh=st.sampled_from(MESHES),
    kind=st.sampled_from(["MaxPool", "AveragePool", "LpPool"]),
    mode=st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]),
    taps=st.integers(1, 5),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    pieces=st.sampled_from([4, 8, 3]),
    ceil_mode=st.integers(0, 1),
    include_pad=st.integers(0, 1),
)
def test_any_automatic_padding(
    mesh: tuple[int, ...],
    kind: str,
    mode: str,
    taps: int,
    stride: int,
    dilation: int,
    pieces: int,
    ceil_mode: int,
    include_pad: int,
) -> None:
    """SAME as ONNX Runtime has it: dilations do not count, and padding may be negative."""
    attributes = {"kernel_shape": [taps], "strides": [stride], "dilations": [dilation]}
    attributes |= {"auto_pad": mode, "ceil_mode": ceil_mode}
    if kind == "AveragePool":
        attributes["count_include_pad"] = include_pad
    with contextlib.suppress(NotRunnableError):
        check(Case(kind, [normal(2, 2, pieces * stride)], attributes, 22), mesh)


def test_same_with_dilations_reads_the_next_part() -> None:
    """The first window begins at element 1, the last one of a part ends in the next part."""
    attributes = {"kernel_shape": [2], "strides": [4], "dilations": [3], "auto_pad": "SAME_UPPER"}
    found = offered(Case("AveragePool", [normal(2, 2, 16)], attributes, 22))
    assert "S(0) -> S(0)" in found
    assert "S(2) -> S(2)" not in found


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_that_tile_split_space(op_type: str) -> None:
    found = offered(Case(op_type, [normal(2, 4, 8, 6)], TILES))
    assert "S(2) -> S(2)" in found
    assert "S(3) -> S(3)" not in found  # three windows


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("storage_order", [0, 1])
def test_indices_count_from_the_start_of_the_whole_input(
    mesh: tuple[int, ...], storage_order: int
) -> None:
    case = Case(
        "MaxPool",
        [normal(4, 4, 6, 4)],
        {**OVERLAP, "storage_order": storage_order},
        results=(True, True),
    )
    # Of three windows by two, only the two can be split, and only once.
    with_space = {(2,): 4, (4,): 3, (2, 2): 4**2 - 1}[mesh]
    assert len(check(case, mesh).tried) == (3 ** len(mesh) if storage_order else with_space)


def test_indices_split_space_but_not_of_symbolic_shapes() -> None:
    both = (True, True)
    found = offered(Case("MaxPool", [normal(2, 4, 8, 8)], TILES, results=both))
    assert found == {"R -> R R", *(f"S({dim}) -> S({dim}) S({dim})" for dim in range(4))}
    hidden = {"symbolic": frozenset({(0, 3)})}
    case = Case("MaxPool", [normal(2, 4, 8, 8)], TILES, results=both, **hidden)  # type: ignore[arg-type]
    assert offered(case) == {"R -> R R"}


def test_omitted_indices_do_not_matter() -> None:
    case = Case("MaxPool", [normal(2, 4, 8, 8)], TILES, results=(True, False))
    assert "S(2) -> S(2) R" in offered(case)


@examples(30)
@given(
    mesh=st.sampled_from(MESHES),
    op_type=st.sampled_from(["MaxPool", "AveragePool", "LpPool"]),
    rank=st.integers(1, 3),
    kernel=st.sampled_from([1, 2, 3]),
    stride=st.sampled_from([1, 2, 3]),
    padding=st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "pads"]),
    ceil_mode=st.integers(0, 1),
    include_pad=st.integers(0, 1),
)
def test_pooling_of_any_shape(
    mesh: tuple[int, ...],
    op_type: str,
    rank: int,
    kernel: int,
    stride: int,
    padding: str,
    ceil_mode: int,
    include_pad: int,
) -> None:
    assume(padding != "SAME_UPPER" or kernel >= stride)  # else ONNX Runtime refuses
    attributes: dict[str, object] = {"kernel_shape": [kernel] * rank, "strides": [stride] * rank}
    pads = {"pads": ([0] * rank + [1] * rank) if kernel > 1 else [0] * 2 * rank}
    attributes |= pads if padding == "pads" else {"auto_pad": padding}
    if padding in ("pads", "NOTSET"):
        attributes["ceil_mode"] = ceil_mode
    if op_type == "AveragePool":
        attributes["count_include_pad"] = include_pad
    check(Case(op_type, [normal(2, 4, *[12, 4, 4][:rank])], attributes), mesh)


def test_pooling_of_bytes() -> None:
    image = np.arange(2 * 2 * 4, dtype=np.uint8).reshape(2, 2, 4)
    assert "S(2) -> S(2)" in offered(Case("MaxPool", [image], {"kernel_shape": [1]}))


@pytest.mark.parametrize("mesh", MESHES)
def test_global_average_leaves_partial_sums_of_space(mesh: tuple[int, ...]) -> None:
    report = check(Case("GlobalAveragePool", [normal(4, 4, 8, 12)]), mesh)
    assert ",".join(["S(2)"] * len(mesh)) + " -> " + ",".join(["P(sum)"] * len(mesh)) in (
        report.offered
    )
    assert len(report.tried) == 6 ** len(mesh)


def test_global_maximum_leaves_partial_maxima_of_space() -> None:
    assert offered(Case("GlobalMaxPool", [normal(2, 4, 6, 4)])) == {
        "R -> R",
        "S(0) -> S(0)",
        "S(1) -> S(1)",
        "S(2) -> P(max)",
        "S(3) -> P(max)",
    }


def test_global_norm_keeps_space_whole() -> None:
    case = Case("GlobalLpPool", [normal(2, 4, 6, 4)], {"p": 2})
    assert offered(case) == {"R -> R", "S(0) -> S(0)", "S(1) -> S(1)"}


def test_work_is_one_per_element_of_a_window() -> None:
    assert check(Case("MaxPool", [normal(2, 4, 8, 8)], OVERLAP), (2,)).flops == 2 * 4 * 16 * 9
    assert check(Case("GlobalAveragePool", [normal(2, 4, 8, 8)]), (2,)).flops == 2 * 4 * 64


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2)])
def test_indices_of_unpooling_count_the_whole_result(mesh: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    corner = np.arange(2 * 4)[:, None, None] * 36 + (np.arange(3) * 12)[:, None] + np.arange(3) * 2
    indices = (corner + rng.integers(0, 2, corner.shape)).reshape(2, 4, 3, 3)
    case = Case(
        "MaxUnpool", [normal(2, 4, 3, 3), indices], {"kernel_shape": [2, 2], "strides": [2, 2]}
    )
    report = check(case, mesh)
    if mesh == (2,):
        assert report.offered == {"R R -> R", "S(0) S(0) -> S(0)", "S(1) S(1) -> S(1)"}


def test_unpooling_to_a_given_shape_stays_whole() -> None:
    operands = [normal(2, 2, 1, 1), np.arange(4).reshape(2, 2, 1, 1) * 4, np.array([2, 2, 2, 2])]
    case = Case("MaxUnpool", operands, {"kernel_shape": [2, 2], "strides": [2, 2]})
    assert offered(case) == {"R R R -> R"}


def test_the_last_window_of_a_part_reads_all_of_its_elements() -> None:
    """SAME with dilations leaves the last element out; windows in the middle read theirs."""
    attributes = {"kernel_shape": [2], "strides": [3], "dilations": [2]}
    attributes |= {"auto_pad": "SAME_UPPER", "ceil_mode": 1}
    found = offered(Case("AveragePool", [normal(2, 2, 12)], attributes, 22))
    assert "S(0) -> S(0)" in found
    assert "S(2) -> S(2)" not in found

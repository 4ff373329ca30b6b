"""Boxes of one array into boxes of another, by the copies of CUDA's stand-in, against numpy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from stand_ins import stand_ins

from tensoropt.runtime.device import cudart, strided
from tensoropt.runtime.device.blocks import Stream
from tensoropt.runtime.device.strided import Part

Shape = tuple[int, ...]
TYPES = [np.uint8, np.float16, np.float32, np.int64]


@pytest.fixture(autouse=True, scope="module")
def stand_in() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSOROPT_CUDART", str(stand_ins() / "libcudart.so.13"))
        cudart._library.cache_clear()
        yield
    cudart._library.cache_clear()


@st.composite
def parts(draw: st.DrawFn) -> tuple[Part, Part]:
    """Two parts of the same size in arrays that are as large or larger, in any dimension."""
    size = tuple(draw(st.lists(st.integers(0, 4), max_size=5)))
    return _part(draw, size), _part(draw, size)


def _part(draw: st.DrawFn, size: Shape) -> Part:
    margin = st.sampled_from([0, 0, 0, 1, 2])
    before, after = ([draw(margin) for _ in size] for _ in range(2))
    shape = tuple(a + n + b for a, n, b in zip(before, size, after, strict=True))
    return Part(shape, tuple(before), size)


def box(part: Part) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip(part.start, part.size, strict=True))


def copied(to: np.ndarray, source: np.ndarray, ours: Part, theirs: Part) -> int:
    """Copy a box as CUDA would; returns the number of copies."""
    copies = list(strided.strided_copies(ours, theirs, to.itemsize))
    stream = Stream()
    for copy in copies:
        stream.copy_box(to.ctypes.data, source.ctypes.data, copy)
    stream.wait()
    stream.close()
    return len(copies)


@examples(150)
@given(parts(), st.sampled_from(TYPES), st.sampled_from([1, 8, 24, (1 << 31) - 1]))
def test_a_box_is_copied_as_numpy_does(both: tuple[Part, Part], dtype: type, most: int) -> None:
    ours, theirs = both
    source = np.arange(np.prod(theirs.shape, dtype=int)).astype(dtype).reshape(theirs.shape)
    to = np.full(ours.shape, 99, dtype)
    expected = to.copy()
    expected[box(ours)] = source[box(theirs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strided, "_MOST_PITCH", most)
        copied(to, source, ours, theirs)
    np.testing.assert_array_equal(to, expected)


@pytest.mark.parametrize(
    ("shape", "box", "other", "count"),
    [
        ((8, 6), (slice(2, 4), slice(0, 6)), (2, 6), 1),  # rows
        ((8, 6), (slice(0, 8), slice(3, 6)), (8, 3), 1),  # columns
        ((4, 8, 6), (slice(0, 4), slice(2, 4), slice(0, 6)), (4, 2, 6), 1),
        ((4, 8, 6), (slice(0, 4), slice(2, 4), slice(1, 3)), (4, 2, 2), 1),
        ((3, 4, 8, 6), (slice(0, 3), slice(0, 4), slice(2, 4), slice(1, 3)), (3, 4, 2, 2), 1),
        ((3, 4, 8, 6), (slice(0, 3), slice(1, 3), slice(2, 4), slice(1, 3)), (3, 2, 2, 2), 3),
    ],
)
def test_a_box_takes_few_copies(shape: Shape, box: tuple, other: Shape, count: int) -> None:
    source = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    to = np.zeros(other, np.float32)
    whole = Part.from_box(other, [slice(0, n) for n in other])
    assert copied(to, source, whole, Part.from_box(shape, box)) == count
    np.testing.assert_array_equal(to, source[box])

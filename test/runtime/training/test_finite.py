"""Whether arrays hold finite numbers only, on the host and where a rank computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.training.finite import FiniteCheck, all_finite


def check(*held: Array) -> bool:
    return FiniteCheck([CPU.place(array) for array in held], CPU)()


@given(st.lists(arrays(np.float32, array_shapes(max_dims=3, max_side=3)), min_size=1, max_size=3))
def test_any_arrays(held: list[Array]) -> None:
    expected = all(bool(np.isfinite(array).all()) for array in held)
    assert check(*held) == all(map(all_finite, held)) == expected


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_element_among_many(dtype: type, wrong: float) -> None:
    held = np.ones((100, 33), dtype)
    assert check(np.zeros((), np.float32), held)
    held[57, 11] = wrong
    assert not check(np.zeros((), np.float32), held)
    held[3, 3] = -wrong
    assert not check(held)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sums_that_overflow_by_themselves(dtype: type) -> None:
    assert check(np.full((64, 64), np.finfo(dtype).max, dtype))


def test_arrays_without_elements_and_none() -> None:
    assert check()
    assert check(np.zeros((0, 3), np.float32))


def test_it_sees_what_is_there_when_asked() -> None:
    held = np.ones(8, np.float32)
    is_finite = FiniteCheck([CPU.place(held)], CPU)
    assert is_finite()
    held[5] = np.nan
    assert not is_finite()


def test_types_of_the_host() -> None:
    assert all_finite(np.array([1, 2]))
    assert all_finite(np.array([1, 2], ml_dtypes.bfloat16))
    assert not all_finite(np.array([1, np.nan], ml_dtypes.bfloat16))

"""Literals of every element type and shape read back bit for bit, also from text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensoropt.dialects.context import context
from tensoropt.dialects.elements import ELEMENTS, Element, dense_to_array, element_of, to_dense
from tensoropt.dialects.mlir import ir

pytestmark = pytest.mark.usefixtures("mlir_context")

LITERALS = [e for e in ELEMENTS if not e.is_complex]
SHAPES = [(), (3,), (1,), (0,), (2, 60), (2, 2, 3), (16, 16)]  # text is hexadecimal from 100 on


def sample(element: Element, shape: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(0)
    if element.name == "STRING":
        count = int(np.prod(shape))
        return np.array([rng.bytes(3) for _ in range(count)], object).reshape(shape)
    if element.is_integer:
        low, high = (-2, 2) if element.bits == 2 else (-8, 8)
        return rng.integers(0 if element.name[0] == "U" else low, high, shape).astype(element.dtype)
    return np.asarray(3 * rng.normal(size=shape)).astype(element.dtype)


@pytest.mark.parametrize("element", LITERALS, ids=lambda element: element.name)
@pytest.mark.parametrize("shape", SHAPES)
def test_literals(element: Element, shape: tuple[int, ...]) -> None:
    array = sample(element, shape)
    got = dense_to_array(ir.Attribute.parse(str(to_dense(array))))
    assert (got.shape, got.dtype) == (array.shape, array.dtype)
    if element.name == "STRING":
        assert got.tolist() == array.tolist()
    else:
        assert got.tobytes() == array.tobytes()


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "float64", "float8_e5m2"])
def test_infinities_and_not_a_number(name: str) -> None:
    array = np.array([np.inf, -np.inf, np.nan, -0.0]).astype(np.dtype(name))
    got = dense_to_array(ir.Attribute.parse(str(to_dense(array))))
    assert got.tobytes() == array.tobytes()


def test_equal_elements_read_back_in_full() -> None:
    array = np.full((2, 3), 1.5, np.dtype("bfloat16"))
    assert str(to_dense(array)) == "dense<1.500000e+00> : tensor<2x3xbf16>"
    assert np.array_equal(dense_to_array(to_dense(array)), array)


def test_complex_literals_are_refused() -> None:
    with pytest.raises(ValueError, match="literals of complex numbers are not supported"):
        to_dense(np.ones(2, np.complex64))


def test_unknown_types() -> None:
    assert element_of(99) is None
    assert element_of("index") is None


def test_texts_are_read_outside_of_their_context() -> None:
    with context():
        literal = to_dense(np.array(["a", "bc"], object))
    with context():
        assert dense_to_array(literal).tolist() == [b"a", b"bc"]

"""Tensors in both forms, and what is none."""

from __future__ import annotations

import functools
import json
import struct
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from budgets import examples
from google.protobuf import json_format
from google.protobuf.wrappers_pb2 import DoubleValue
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensoropt.runtime.support.dtypes import dtype_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.serving.protocol.refusals import RefusedError
from tensoropt.serving.protocol.tensors import (
    DATATYPES,
    TensorSpec,
    from_raw,
    from_values,
    to_raw,
    to_values,
)

_NUMBERS = sorted(set(DATATYPES) - {"string", "bfloat16"})


@examples(40)
@given(st.sampled_from(_NUMBERS), st.data())
def test_numbers_come_back_from_both_forms(name, data):
    array = data.draw(hnp.arrays(dtype_of(name), hnp.array_shapes(min_dims=0, min_side=0)))
    datatype = DATATYPES[name]
    np.testing.assert_array_equal(from_raw("x", datatype, array.shape, to_raw(array)), array)
    found = from_values("x", datatype, array.shape, to_values(array))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_bfloat16_comes_back():
    array = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
    for found in (
        from_raw("x", "BF16", (1, 2), to_raw(array)),
        from_values("x", "BF16", (1, 2), to_values(array)),
    ):
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


@given(st.lists(st.text(), max_size=5))
def test_strings_come_back(texts):
    array = np.array(texts, object).reshape(1, -1)
    for found in (
        from_raw("x", "BYTES", array.shape, to_raw(array)),
        from_values("x", "BYTES", array.shape, to_values(array)),
    ):
        assert found.tolist() == array.tolist()
        assert found.dtype == object


def test_lists_may_be_nested():
    found = from_values("x", "INT8", (2, 2), [[1, 2], [3, 4]])
    assert found.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("datatype", "shape", "raw", "text"),
    [
        ("FP32", [2], b"1234", "expected 8 bytes for FP32 of shape [2], got: 4"),
        ("FP32", [2**40, 2**40], b"", "shape: expected less than 2^63 bytes, got: [1099511627776,"),
        ("FP32", [0, 10**30], b"", "shape: expected less than 2^63 bytes, got: [0, 1000000000000"),
        ("FP32", [0, 10**4000], b"", "shape: expected less than 2^63 bytes"),
        ("FP32", [0, 2**62], b"", "shape: expected less than 2^63 bytes"),
        ("FP32", [1] * 80, bytes(4), "shape: expected at most 64 sizes, got: 80"),
        ("BYTES", [0, 2**61], b"", "shape: expected less than 2^63 bytes"),
        ("BOOL", [2], b"\0\2", "expected bytes 0 and 1 for BOOL"),
        ("BYTES", [1], b"\xff\xff\xff\xffab", "expected strings, each with its length"),
        ("BYTES", [1], b"\1\0", "expected strings, each with its length"),
        ("BYTES", [1], struct.pack("<I", 1) + b"\xff", "expected strings in UTF-8"),
        ("BYTES", [2], struct.pack("<I", 1) + b"a", "expected 2 elements for shape [2], got: 1"),
        ("FP31", [2], b"", "expected one of the protocol's, got: 'FP31', did you mean 'FP32'?"),
    ],
)
def test_bytes_that_are_no_tensor(datatype, shape, raw, text):
    with pytest.raises(RefusedError) as caught:
        from_raw("x", datatype, shape, raw)
    assert str(caught.value).startswith("input 'x': ")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("datatype", "shape", "values", "text"),
    [
        ("FP32", [2], [1.0], "expected 2 elements for shape [2], got: 1"),
        ("FP32", [2], [[1.0], [1.0, 2.0]], "data: expected a list of rows of one length"),
        ("FP32", [2], ["a", "b"], "data: expected numbers for FP32"),
        ("FP32", [1], [None], "data: expected numbers for FP32"),
        ("FP32", [1], [{}], "data: expected numbers for FP32"),
        ("FP32", [1], [1e39], "data: expected values that fit FP32, got: larger values"),
        ("FP16", [1], [70000], "data: expected values that fit FP16, got: larger values"),
        ("INT64", [1], [1.5], "data: expected integers for INT64"),
        ("INT64", [1], [True], "data: expected integers for INT64"),
        ("INT8", [1], [200], "data: expected values that fit INT8, got: larger values"),
        ("UINT8", [1], [-1], "data: expected values that fit UINT8, got: larger values"),
        ("UINT64", [1], [2**64], "data: expected values that fit UINT64, got: larger values"),
        ("UINT64", [2], [-1, 2**63], "data: expected values that fit UINT64, got: larger values"),
        ("UINT64", [2], [2**63, 1.0], "data: expected integers for UINT64"),
        ("INT64", [2], [1, 2**63], "data: expected values that fit INT64, got: larger values"),
        ("INT64", [2], [1, True], "data: expected integers for INT64"),
        ("INT64", [1], ["NaN"], "data: expected integers for INT64"),
        ("FP64", [1], [10**400], "data: expected values that fit FP64, got: larger values"),
        ("FP32", [2], [True, 1.5], "data: expected numbers for FP32"),
        ("FP32", [2], ["nan", 1.5], "data: expected numbers for FP32"),
        ("FP32", [2], [None, 1.5], "data: expected numbers for FP32"),
        ("BYTES", [1], ["a\ud800"], r"data: expected Unicode, got: 'a\ud800'"),
        ("BYTES", [2], [["a"], ["b", "c"]], "data: expected strings for BYTES, got: ['a']"),
        ("BYTES", [1], functools.reduce(lambda x, _: [x], range(900), "a"), "data: expected str"),
        ("FP32", [1], functools.reduce(lambda x, _: [x], range(900), 1.0), "data: expected a list"),
        ("INT64", [1], [2**63], "data: expected values that fit INT64, got: larger values"),
        ("BOOL", [1], [1], "data: expected true and false for BOOL"),
        ("BYTES", [1], [1], "data: expected strings for BYTES, got: 1"),
    ],
)
def test_values_that_are_no_tensor(datatype, shape, values, text):
    with pytest.raises(RefusedError) as caught:
        from_values("x", datatype, shape, values)
    assert text in str(caught.value)


def test_integers_keep_all_their_digits():
    found = from_values("x", "UINT64", [3], [1, 2**63, 2**64 - 1])
    assert found.tolist() == [1, 2**63, 2**64 - 1]


def test_large_integers_are_numbers():
    assert from_values("x", "FP32", [2], [2**70, 0.5]).tolist() == [2.0**70, 0.5]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_numbers_that_json_lacks_are_the_strings_of_protobuf(name):
    array = np.array([[1.5, np.nan], [np.inf, -np.inf]]).astype(dtype_of(name))
    values = to_values(array)
    wrapped = [DoubleValue(value=float(number)) for number in array.ravel()]
    assert values == list(map(json_format.MessageToDict, wrapped))
    text = json.dumps(values, allow_nan=False)
    found = from_values("x", DATATYPES[name], (2, 2), json.loads(text))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found.astype(np.float64), array.astype(np.float64))


def test_a_long_text_beside_many_numbers_takes_no_more_memory_than_both():
    """numpy's common type would give each number as much room as the text has."""
    tracemalloc.start()
    with pytest.raises(RefusedError, match="expected numbers"):
        from_values("x", "FP32", [10**5 + 1], ["x" * 10**4, *range(10**5)])
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most_bytes < 1 << 24


def test_types_that_the_protocol_has_not():
    with pytest.raises(UserError, match="'w': the protocol has no element type float8_e4m3fn"):
        _ = TensorSpec("w", "float8_e4m3fn", (1,)).datatype

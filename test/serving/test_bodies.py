"""Bodies of HTTP: what JSON and the bytes after it say, and that nothing else gets through."""

from __future__ import annotations

import json

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.serving.protocol.bodies import read_body, write_body
from tensoropt.serving.protocol.refusals import RefusedError
from tensoropt.serving.protocol.requests import Answer
from tensoropt.serving.protocol.tensors import Requested

X = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2.5]}


def _body(**fields):
    return json.dumps({"inputs": [X], **fields}).encode()


def test_a_request_in_json():
    found = read_body(_body(id="7"), None)
    assert found.id == "7"
    assert found.outputs is None
    assert not found.is_binary
    np.testing.assert_array_equal(found.inputs["x"], np.array([[1, 2.5]], np.float32))


def test_a_request_with_bytes_after_json():
    pieces = {"x": np.arange(2.0, dtype=np.float32), "k": np.array([3], np.int64)}
    entries = [
        {
            "name": name,
            "datatype": {"x": "FP32", "k": "INT64"}[name],
            "shape": [len(array)],
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in pieces.items()
    ]
    head = json.dumps({"inputs": entries, "parameters": {"binary_data_output": True}}).encode()
    body = head + b"".join(array.tobytes() for array in pieces.values())
    found = read_body(bytearray(body), str(len(head)))
    assert found.is_binary
    for name, array in pieces.items():
        np.testing.assert_array_equal(found.inputs[name], array)


def test_outputs_may_be_named():
    outputs = [{"name": "y", "parameters": {"binary_data": True}}, {"name": "z"}]
    assert read_body(_body(outputs=outputs), None).outputs == (
        Requested("y", is_binary=True),
        Requested("z"),
    )


@pytest.mark.parametrize(
    ("body", "length", "text"),
    [
        (b"", None, "body: expected JSON: "),
        (b"{", None, "body: expected JSON: "),
        (b"\xff\xfe", None, "body: expected JSON: "),
        (b"[" * 100_000, None, "body: expected JSON: "),
        (b"[]", None, "body: expected a JSON object, got: list"),
        (b"{}", None, "the request: expected a list of objects as 'inputs'"),
        (b'{"inputs": [1]}', None, "the request: expected a list of objects as 'inputs'"),
        (_body(id=7), None, "the request: expected a string as 'id', got: 7"),
        (_body(inputs=[X, X]), None, "input 'x': expected it once, got: twice"),
        (_body(inputs=[{**X, "name": 1}]), None, "an input: expected a string as 'name', got: 1"),
        (_body(inputs=[{**X, "shape": [-1]}]), None, "expected a list of sizes as 'shape'"),
        (_body(inputs=[{**X, "shape": [True]}]), None, "expected a list of sizes as 'shape'"),
        (_body(inputs=[{**X, "shape": "a"}]), None, "expected a list of sizes as 'shape'"),
        (_body(inputs=[{**X, "data": 1}]), None, "expected a list as 'data', or binary_data_size"),
        (_body(inputs=[{**X, "parameters": 1}]), None, "expected an object as 'parameters'"),
        (
            _body(inputs=[{**X, "parameters": {"binary_data_size": 8}}]),
            None,
            "binary_data_size: expected at most 0, got: 8",
        ),
        (
            _body(inputs=[{**X, "parameters": {"shared_memory_region": "r"}}]),
            None,
            "the extension of 'shared_memory_region' is not served",
        ),
        (
            _body(outputs=[{"name": "y", "parameters": {"classification": 3}}]),
            None,
            "output 'y': the extension of 'classification' is not served",
        ),
        (_body(outputs=[1]), None, "the request: expected a list of objects as 'outputs'"),
        (_body(), "-5", "Inference-Header-Content-Length: expected at most "),
        (_body(), "abc", "Inference-Header-Content-Length: expected at most "),
        (_body(), "9" * 5000, "Inference-Header-Content-Length: expected at most "),
        (_body(), "0" * 4999 + "9" * 9, "Inference-Header-Content-Length: expected at most "),
        (_body(inputs=[{**X, "shape": [0, 10**30]}]), None, "shape: expected less than 2^63 bytes"),
        (_body(inputs=[{**X, "datatype": "\ud800"}]), None, r"got: '\ud800'"),
        (_body() + b"more", str(len(_body())), "body: expected its end after the last input"),
    ],
)
def test_what_is_no_request(body, length, text):
    with pytest.raises(RefusedError) as caught:
        read_body(body, length)
    assert text in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_length_of_json_may_begin_with_zeros():
    assert read_body(_body(id="7"), "0" * 5000 + str(len(_body(id="7")))).id == "7"


def test_a_long_name_is_cut():
    with pytest.raises(RefusedError) as caught:
        read_body(_body(inputs=[{**X, "name": "n" * 10**6, "shape": 5}]), None)
    assert len(str(caught.value)) < 1100


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
_FIELDS = st.sampled_from(["name", "shape", "datatype", "data", "parameters"])
_INPUT = st.dictionaries(_FIELDS, _JSON, max_size=3).map(lambda changed: {**X, **changed})


@examples(40)
@given(st.fixed_dictionaries({"inputs": st.lists(_INPUT, max_size=2)}, optional={"outputs": _JSON}))
def test_any_json_is_a_request_or_refused(document):
    try:
        found = read_body(json.dumps(document).encode(), None)
    except RefusedError as error:
        assert str(error)
    else:
        assert found.inputs.keys() == {entry["name"] for entry in document["inputs"]}


def test_an_answer_with_bytes_and_without():
    y, z = np.array([[1.0, 2.0]], np.float32), np.array(["a"], object)
    answer = Answer("m", "1", "7", ((Requested("y", is_binary=True), y), (Requested("z"), z)))
    body, length = write_body(answer)
    document = json.loads(body[:length])
    assert document == {
        "model_name": "m",
        "model_version": "1",
        "id": "7",
        "outputs": [
            {
                "name": "y",
                "datatype": "FP32",
                "shape": [1, 2],
                "parameters": {"binary_data_size": 8},
            },
            {"name": "z", "datatype": "BYTES", "shape": [1], "data": ["a"]},
        ],
    }
    assert body[length:] == y.tobytes()
    body, length = write_body(Answer("m", "1", "", ((Requested("y"), y),)))
    assert length is None
    assert json.loads(body)["outputs"][0]["data"] == [1.0, 2.0]


def test_an_answer_with_numbers_that_json_lacks():
    y = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    body, _ = write_body(Answer("m", "1", "", ((Requested("y"), y),)))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    document = json.loads(body, parse_constant=refuse)
    assert document["outputs"][0]["data"] == ["NaN", "Infinity", "-Infinity", 1.0]

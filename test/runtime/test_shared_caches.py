"""Operators of the installed ONNX Runtime write new keys into the memory of a cache."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.session.session import made_session

BATCH, HEADS, ROOM, SIZE = 3, 2, 32, 16
LENGTHS = np.array([3, 17, 30], np.int32)  # of the sequences before the step


def attention(kind: int) -> bytes:
    """Return a graph of one operator that takes a single token of each sequence."""
    value = helper.make_tensor_value_info
    given = [value(name, kind, ["b", "s", HEADS * SIZE]) for name in ("q", "k", "v")]
    given += [value(name, kind, ["b", HEADS, "m", SIZE]) for name in ("keys", "values")]
    given += [value("lengths", TensorProto.INT32, ["b"]), value("total", TensorProto.INT32, [])]
    made = [value("y", kind, ["b", "s", HEADS * SIZE])]
    made += [value(name, kind, ["b", HEADS, "n", SIZE]) for name in ("new_keys", "new_values")]
    node = helper.make_node(
        "GroupQueryAttention",
        [one.name for one in given],
        [one.name for one in made],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=HEADS,
    )
    graph = helper.make_graph([node], "g", given, made)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sequences_of_different_lengths(dtype: type[np.floating]) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    random = np.random.default_rng(0)
    fed = {name: random.normal(size=(BATCH, 1, HEADS * SIZE)).astype(dtype) for name in "qkv"}
    caches = {
        name: random.normal(size=(BATCH, HEADS, ROOM, SIZE)).astype(dtype)
        for name in ("keys", "values")
    }
    fed |= {"lengths": LENGTHS, "total": np.array(ROOM, np.int32)}
    apart, shared = (made_session(attention(kind), CPU) for _ in range(2))
    for name, array in (fed | caches).items():
        apart.feed(name, array)
    for name, array in fed.items():
        shared.feed(name, array)
    held = {name: CPU.place(array.copy()) for name, array in caches.items()}
    for name, array in held.items():
        shared.read(name, array)
        shared.write(f"new_{name}", array)
    apart.run()
    shared.run()
    expected, found = apart.fetch(), shared.fetch()
    np.testing.assert_array_equal(found["y"], expected["y"])
    for name, before in caches.items():
        after = held[name].get()
        for row, length in enumerate(LENGTHS):
            end = int(length) + 1
            np.testing.assert_array_equal(
                after[row, :, :end], expected[f"new_{name}"][row, :, :end]
            )
            np.testing.assert_array_equal(after[row, :, end:], before[row, :, end:])


ROWS, CACHE = (BATCH, 1, HEADS * SIZE), (BATCH, HEADS, ROOM, SIZE)
TOLD = np.array([ROOM - 3], np.int32)  # of the tokens of all sequences

OTHERS = {
    "MultiHeadAttention": (["q", "k", "v", "", "", "", "keys", "values", "told"], {}),
    "DecoderMaskedMultiHeadAttention": (
        ["q", "k", "v", "", "", "keys", "values", "told"],
        {"past_present_share_buffer": 1},
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_operators_that_are_told_how_many_tokens_there_are(kind: str) -> None:
    given, attributes = OTHERS[kind]
    node = helper.make_node(
        kind,
        given,
        ["y", "new_keys", "new_values"],
        domain="com.microsoft",
        num_heads=HEADS,
        **attributes,
    )
    random = np.random.default_rng(0)
    fed = {name: random.normal(size=ROWS).astype(np.float32) for name in "qkv"}
    caches = {name: random.normal(size=CACHE).astype(np.float32) for name in ("keys", "values")}
    _overwrites(node, {**fed, "told": TOLD}, caches, ["y"])


def test_a_scatter() -> None:
    node = helper.make_node("TensorScatter", ["keys", "x", "at"], ["new_keys"], axis=2)
    random = np.random.default_rng(0)
    fed = {
        "x": random.normal(size=(BATCH, HEADS, 1, SIZE)).astype(np.float32),
        "at": LENGTHS.astype(np.int64),
    }
    _overwrites(node, fed, {"keys": random.normal(size=CACHE).astype(np.float32)}, [])


def _overwrites(
    node: onnx.NodeProto,
    fed: dict[str, np.ndarray],
    caches: dict[str, np.ndarray],
    others: list[str],
) -> None:
    """Hold a run in one memory against one with outputs of their own; only one token changes."""
    value, every = helper.make_tensor_value_info, {**fed, **caches}
    given = [
        value(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in every.items()
    ]
    made = [value(name, TensorProto.FLOAT, None) for name in others]
    made += [value(f"new_{name}", TensorProto.FLOAT, CACHE) for name in caches]
    imports = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", given, made)
    model = helper.make_model(graph, opset_imports=imports, ir_version=11).SerializeToString()
    apart, shared = (made_session(model, CPU) for _ in range(2))
    held = {name: CPU.place(array.copy()) for name, array in caches.items()}
    for name, array in every.items():
        apart.feed(name, array)
        if name in fed:
            shared.feed(name, array)
    for name, array in held.items():
        shared.read(name, array)
        shared.write(f"new_{name}", array)
    apart.run()
    shared.run()
    expected, found = apart.fetch(), shared.fetch()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])
    for name, before in caches.items():
        assert shared.values([f"new_{name}"])[f"new_{name}"].data_ptr() == held[name].address
        changed = np.any(held[name].get() != before, axis=(1, 3))
        assert list(changed.sum(axis=1)) == [1] * BATCH

"""GroupQueryAttention of the installed ONNX Runtime writes new keys into a cache that has room."""

from __future__ import annotations

import numpy as np
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

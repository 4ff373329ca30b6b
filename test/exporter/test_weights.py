"""Parameters by reference: every slice, every type, streamed in pieces, never a whole model."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from importer.models import F32, model, node, saved, untyped, value
from onnx import TensorProto, numpy_helper

from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.importer.wire import INLINE_LIMIT
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.elements import ELEMENTS, element_of_array

pytestmark = pytest.mark.usefixtures("mlir_context")


def packed(array: Any) -> bytes:
    """The bytes that ONNX stores, by its own library."""
    return numpy_helper.from_array(np.ascontiguousarray(array), "t").raw_data


def source_of(array: Any, folder: Path, where: str) -> ParameterSource:
    """Store ``array`` as parameter `w`: in the proto, large in the proto, or beside it."""
    tensor = numpy_helper.from_array(array, "w")
    if where == "typed":
        assert array.dtype == np.float32
        tensor.ClearField("raw_data")
        tensor.float_data.extend(array.reshape(-1).tolist())
    if where == "said to be inline":
        tensor.data_location = TensorProto.DEFAULT  # as onnxruntime.quantization writes it
    if where == "external":
        (folder / "w.bin").write_bytes(b"\7" * 5 + tensor.raw_data + b"\7")
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
        tensor.external_data.add(key="offset", value="5")
    kind = value("x", tensor.data_type, [1])
    proto = model([node("Identity", ["w"], ["y"])], [kind], [untyped("y")], [tensor], opset=26)
    return ParameterSource(saved(proto, folder))


def cuts_of(shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """Every way to take the whole, a first or a last part of each dimension."""
    sides = [[slice(0, n), slice(0, max(1, n // 2)), slice(n // 2, n)] for n in shape]
    return list(itertools.product(*sides))


@pytest.mark.parametrize("where", ["inline", "said to be inline", "external", "typed"])
@pytest.mark.parametrize("shape", [(6, 5, 4), (64, 48), (3000,), (2,), (1, 2100, 1)])
def test_every_slice(where: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    source = source_of(array, tmp_path, where)
    assert (source.shape("w"), source.element("w").numpy) == (shape, "float32")
    for cuts, chunk_bytes in itertools.product(cuts_of(shape), (100, 1 << 20)):
        assert np.array_equal(source.read("w", cuts), array[cuts])
        data = b"".join(source.stream("w", cuts, chunk_bytes=chunk_bytes))
        assert data == packed(array[cuts])


ELEMENTS_IN_FILES = [e for e in ELEMENTS if e.name != "STRING"]


@pytest.mark.parametrize("where", ["inline", "external"])
@pytest.mark.parametrize("element", ELEMENTS_IN_FILES, ids=lambda element: element.name)
def test_every_element_type(element: Any, where: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    array = 2.0 ** -rng.integers(0, 2, (5, 3, 70))  # no type has fewer values than 1/2 and 1
    array = (2 * array - 1 if element.is_integer else array).astype(element.dtype)
    source = source_of(array, tmp_path, where)
    assert element_of_array(source.read("w")) == element
    for cuts in cuts_of(array.shape):
        assert np.array_equal(source.read("w", cuts), array[cuts])
        for chunk_bytes in (13, 1 << 20):
            data = b"".join(source.stream("w", cuts, chunk_bytes=chunk_bytes))
            assert data == packed(array[cuts])


@examples(60)
@given(
    shape=st.lists(
        st.integers(2, 6), min_size=1, max_size=4
    ),  # integers and single ones are literals
    chunk_bytes=st.integers(1, 200),
    bits=st.sampled_from(["float4_e2m1fn", "float8_e5m2", "float16", "float64"]),
    data=st.data(),
)
def test_any_part_in_any_pieces(
    tmp_path_factory: Any, shape: list[int], chunk_bytes: int, bits: str, data: Any
) -> None:
    import ml_dtypes  # noqa: F401  (registers narrow floats)

    array = np.arange(np.prod(shape)).reshape(shape).astype(np.dtype("int64")) % 2
    array = array.astype(np.dtype(bits))
    source = source_of(array, tmp_path_factory.mktemp("w"), "external")
    cuts = []
    for size in shape:
        start = data.draw(st.integers(0, size))
        cuts.append(slice(start, data.draw(st.integers(start, size + 3))))
    got = b"".join(source.stream("w", cuts, chunk_bytes=chunk_bytes))
    part = array[tuple(cuts)]
    expected = np.zeros([cut.stop - cut.start for cut in cuts], array.dtype)  # behind the end
    expected[tuple(map(slice, part.shape))] = part
    assert got == packed(expected)


def test_pieces_are_small(tmp_path: Path) -> None:
    array = np.zeros((100, 1000), np.float32)
    source = source_of(array, tmp_path, "external")
    sizes = [len(piece) for piece in source.stream("w", chunk_bytes=10_000)]
    assert sizes == [8_000] * 50


def test_strings(tmp_path: Path) -> None:
    array = np.array([["a", "bc"], ["", "d"]], object)
    tensor = onnx.helper.make_tensor("w", TensorProto.STRING, (2, 2), array.reshape(-1).tolist())
    proto = model([node("Identity", ["w"], ["y"])], [], [untyped("y")], [tensor])
    got = ParameterSource(saved(proto, tmp_path)).read("w", [slice(0, 2), slice(1, 2)])
    assert got.tolist() == [["bc"], ["d"]]


def test_unknown_parameter(tmp_path: Path) -> None:
    source = source_of(np.zeros(3, np.float32), tmp_path, "inline")
    with pytest.raises(UserError, match="no parameter 'ww', did you mean 'w'\\?"):
        source.read("ww")


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    source = source_of(np.zeros(3000, np.float32), tmp_path, "external")
    pieces = source.stream("w", chunk_bytes=4000)
    next(pieces)
    (tmp_path / "w.bin").write_bytes(bytes(10))
    with pytest.raises(UserError, match="ends while a parameter is read"):
        list(pieces)


def test_large_inline_weights_stay_in_the_file(tmp_path: Path) -> None:
    source_of(np.zeros(INLINE_LIMIT, np.uint8), tmp_path, "inline")
    from tensoropt.compiler.importer.model_file import load_model

    def held(size: int) -> int:
        source_of(np.zeros(size, np.uint8), tmp_path, "inline")
        return len(load_model(tmp_path / "model.onnx").proto.SerializeToString())

    assert held(INLINE_LIMIT) > INLINE_LIMIT
    assert held(INLINE_LIMIT + 1) < 300


PEAK = """
import sys
from tensoropt.compiler.exporter.rank import export_model
from tensoropt.compiler.importer.importer import import_model
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.dialects.context import context
def peak():  # MiB; getrusage would count the process that started this one
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024
with context():
    before = peak()
    module = import_model(sys.argv[1])
    export_model(module, sys.argv[1] + ".out", ParameterSource(sys.argv[1]))
    print(peak() - before)
"""


@pytest.mark.parametrize("where", ["inline", "external"])
def test_memory_is_bounded(where: str, tmp_path: Path) -> None:
    """128 MiB of weights in the proto or beside it pass through with a fraction of that."""
    source_of(np.zeros((2048, 16384), np.float32), tmp_path, where)
    command = [sys.executable, "-c", PEAK, str(tmp_path / "model.onnx")]
    added_mib = int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert added_mib < 64
    assert (tmp_path / "model.onnx.out.data").stat().st_size == 128 << 20


def test_parameters_keep_their_name_and_type(tmp_path: Path) -> None:
    source = source_of(np.zeros(3, np.float32), tmp_path, "inline")
    assert source.names == ["w"]
    assert source.element("w").number == F32


def test_too_few_numbers_in_the_proto(tmp_path: Path) -> None:
    tensor = onnx.TensorProto(name="w", data_type=F32, dims=[3], float_data=[1.0])
    proto = model([node("Identity", ["w"], ["y"])], [], [untyped("y")], [tensor])
    with pytest.raises(UserError, match="parameter 'w' cannot be read: "):
        ParameterSource(saved(proto, tmp_path)).read("w")

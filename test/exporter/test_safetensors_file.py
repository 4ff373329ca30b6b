"""Files of the safetensors format, written as a stream and read by the library."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from importer.models import F32, model, node, saved, untyped, value
from onnx import numpy_helper
from safetensors import safe_open

from tensoropt.compiler.exporter import weights
from tensoropt.compiler.exporter.safetensors_file import Part, write_safetensors
from tensoropt.compiler.exporter.weights import ParameterSource

pytestmark = pytest.mark.usefixtures("mlir_context")

ARRAYS = {
    "half": np.arange(3, dtype=np.float16),
    "w": np.arange(64 * 60, dtype=np.float32).reshape(64, 60),
    "brain": np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3),
    "wide": np.arange(5, dtype=np.float64),
    "weiß": np.arange(2, dtype=np.float32),
    "empty": np.zeros((0, 4), np.float32),
}


@pytest.fixture
def source(tmp_path: Path) -> ParameterSource:
    stored = [numpy_helper.from_array(array, name) for name, array in ARRAYS.items()]
    nodes = [node("Identity", [name], [f"{name}_out"]) for name in ARRAYS]
    outputs = [untyped(f"{name}_out") for name in ARRAYS]
    return ParameterSource(saved(model(nodes, [value("x", F32, [1])], outputs, stored), tmp_path))


def whole(name: str) -> Part:
    return Part(name, [slice(0, size) for size in ARRAYS[name].shape])


def test_the_library_reads_what_is_written(source: ParameterSource, tmp_path: Path) -> None:
    path = tmp_path / "weights" / "rank0.safetensors"
    write_safetensors(path, [*map(whole, ARRAYS)], source)
    with safe_open(path, "numpy") as file:
        assert set(file.keys()) == set(ARRAYS)
        for name in set(ARRAYS) - {"brain"}:  # NumPy has no such type
            np.testing.assert_array_equal(file.get_tensor(name), ARRAYS[name])
            assert file.get_tensor(name).dtype == ARRAYS[name].dtype
        assert file.get_slice("brain").get_dtype() == "BF16"
    assert ARRAYS["brain"].tobytes() in path.read_bytes()


def test_tensors_are_aligned_to_their_elements(source: ParameterSource, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_safetensors(path, [*map(whole, ARRAYS)], source)
    raw = path.read_bytes()
    assert (8 + int.from_bytes(raw[:8], "little")) % 8 == 0
    assert raw.index(ARRAYS["wide"].tobytes()) % 8 == 0
    assert raw.index(ARRAYS["w"].tobytes()) % 4 == 0
    assert raw.index(ARRAYS["w"].tobytes()) < raw.index(ARRAYS["half"].tobytes())


def test_parts_are_cut_and_streamed(
    source: ParameterSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    stream = ParameterSource.stream

    def watched(self: ParameterSource, name: str, slices: list[slice]):
        for chunk in stream(self, name, slices, chunk_bytes=1000):
            sizes.append(len(chunk))
            yield chunk

    monkeypatch.setattr(weights.ParameterSource, "stream", watched)
    for number in (1, 2):
        part = Part("w", [slice(32, 64), slice(20, 40)])
        write_safetensors(tmp_path / f"{number}.safetensors", [part], source)
    assert max(sizes) <= 1000
    with safe_open(tmp_path / "1.safetensors", "numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("w"), ARRAYS["w"][32:, 20:40])
    assert (tmp_path / "1.safetensors").read_bytes() == (tmp_path / "2.safetensors").read_bytes()


def test_no_part(source: ParameterSource, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a.safetensors", [], source)
    with safe_open(tmp_path / "a.safetensors", "numpy") as file:
        assert list(file.keys()) == []

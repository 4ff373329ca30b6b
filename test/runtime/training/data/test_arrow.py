"""Samples in Parquet and Arrow files: what columns may hold, order, reads, and what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from budgets import examples
from data_sources import INPUTS, WHOLE, arrays, labels_of
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, ipc, parquet

from tensoropt.runtime.layout.mesh_layout import parse_layout
from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.data import arrow
from tensoropt.runtime.training.data.columns import column_of
from tensoropt.runtime.training.data.open import open_dataset

REPLICATED = parse_layout(["R"], [1])
IMAGE = Tensor("x", "float32", (4, 2, 3), REPLICATED)


def table(count: int, first: int = 0) -> pa.Table:
    held = arrays(count, first)
    x = pa.FixedSizeListArray.from_arrays(pa.array(held["x"].ravel()), 3)
    return pa.table({"x": x, "labels": held["labels"], "notes": ["unread"] * count})


def save_parquet(path: Path, held: pa.Table, rows: int = 4) -> None:
    parquet.write_table(held, path.with_suffix(".parquet"), row_group_size=rows)


def save_arrow(path: Path, held: pa.Table, rows: int = 4) -> None:
    with ipc.new_file(path.with_suffix(".arrow"), held.schema) as file:
        file.write_table(held, max_chunksize=rows)


def save_feather(path: Path, held: pa.Table, rows: int = 4) -> None:
    feather.write_feather(held, path.with_suffix(".feather"), "zstd", chunksize=rows)


SAVES = [save_parquet, save_arrow, save_feather]


def folder_of(place: Path, counts: list[int], save: Callable[..., None], rows: int = 4) -> Path:
    place.mkdir()
    for number, count in enumerate(counts):
        save(place / f"part{number}", table(count, sum(counts[:number])), rows)
    return place


@pytest.mark.parametrize("save", SAVES)
def test_files_in_order_and_from_the_start_again(tmp_path: Path, save) -> None:
    source = open_dataset(folder_of(tmp_path / "data", [9, 1, 6], save), INPUTS, 4)
    assert source.facts.samples == 16
    assert [samples for _, samples in source.facts.files] == [9, 1, 6]
    assert source.facts.groups == 6
    assert source.facts.kind == ("parquet" if save is save_parquet else "arrow")
    found = [source.read(4 * step, WHOLE) for step in range(8)]
    assert [n for batch in found for n in batch["labels"]] == [*range(16), *range(16)]
    assert all((batch["x"] == batch["labels"][:, None]).all() for batch in found)
    assert found[0]["x"].flags.writeable  # not what is kept


@examples(20)
@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    window=st.integers(1, 20),
    seed=st.integers(0, 9),
    batch=st.integers(1, 5),
)
def test_a_shuffled_epoch_has_every_sample_once(
    tmp_path_factory, counts, window, seed, batch
) -> None:
    place = folder_of(tmp_path_factory.mktemp("data") / "files", counts, save_parquet, 3)
    total = sum(counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "WINDOW_BYTES", window * 20)
        source = open_dataset(place, INPUTS, 1, seed)
        again = open_dataset(place, INPUTS, 1, seed)
    found = [n for at in range(0, 2 * total, batch) for n in labels_of(source, at, batch)]
    assert sorted(found[:total]) == sorted(found[total : 2 * total]) == list(range(total))
    assert labels_of(again, total // 2, total) == found[total // 2 :][:total]
    assert source.ids(0, 2 * total).tolist() == found[: 2 * total]


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("shuffle", [None, 5])
def test_each_group_is_read_once_per_epoch(tmp_path: Path, monkeypatch, save, shuffle) -> None:
    """By a rank that has part of the rows and of the columns of a batch."""
    place = folder_of(tmp_path / "data", [40, 40], save)
    monkeypatch.setattr(arrow, "WINDOW_BYTES", 16 * 20)
    source = open_dataset(place, INPUTS, 8, shuffle)
    read: list[str] = []
    for kind in (arrow._ParquetFile, arrow._ArrowFile):
        values = kind.values

        def counted(self, name: str, group: int, values=values) -> object:
            read.append(name)
            return values(self, name, group)

        monkeypatch.setattr(kind, "values", counted)
    part = {"x": (slice(2, 6), slice(1, 2)), "labels": (slice(0, 8),)}
    found = [source.read(8 * step, part) for step in range(10)]
    assert sorted(n for batch in found for n in batch["labels"]) == list(range(80))
    assert all((batch["x"][:, 0] == batch["labels"][2:6]).all() for batch in found)
    assert found[0]["x"].shape == (4, 1)
    assert read.count("labels") == 20
    assert read.count("x") <= 20
    held = source._samples._kept["labels"]._samples
    assert held <= (4 if shuffle is None else 20)


@pytest.mark.parametrize("save", [save_parquet, save_arrow])
@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.large_list(pa.float32()),
        pa.list_(pa.float32(), 6),
        pa.list_(pa.list_(pa.float32())),
        pa.list_(pa.list_(pa.float32(), 3), 2),
        pa.list_(pa.list_(pa.list_(pa.float32(), 3)), 1),
        pa.fixed_shape_tensor(pa.float32(), [2, 3]),
        pa.fixed_shape_tensor(pa.float32(), [6]),
        pa.list_(pa.fixed_shape_tensor(pa.float32(), [3])),
    ],
    ids=str,
)
def test_what_a_column_may_be(tmp_path: Path, kind: pa.DataType, save) -> None:
    values = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    save(tmp_path / "data", pa.table({"x": column(kind, values)}))
    (path,) = tmp_path.iterdir()
    source = open_dataset(path, [IMAGE], 4)
    found = source.read(3, {"x": (slice(0, 4), slice(0, 2), slice(1, 3))})["x"]
    assert np.array_equal(found, values[3:7, :, 1:])


def column(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    """Return the values of samples as a column of a type."""
    flat = pa.array(values.ravel())
    levels = []
    while not pa.types.is_primitive(kind):
        levels.append(kind)
        kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind.value_type
    sizes = {6: {1: (6,), 2: (2, 3), 3: (1, 2, 3)}}[values[0].size]
    lists = [k for k in levels if not isinstance(k, pa.BaseExtensionType)]
    array, shape = flat, sizes[len(lists)]
    for level in reversed(levels):
        if isinstance(level, pa.BaseExtensionType):
            array = pa.ExtensionArray.from_storage(level, array)
            continue
        size, shape = shape[-1], shape[:-1]
        if isinstance(level, pa.FixedSizeListType):
            array = pa.FixedSizeListArray.from_arrays(array, type=level)
        else:
            make = pa.LargeListArray if isinstance(level, pa.LargeListType) else pa.ListArray
            array = make.from_arrays(np.arange(0, len(array) + 1, size), array)
    return array


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("bool", [True, False, True, True]),
        ("int32", [1, 2, 3, 4]),
        ("uint8", [1, 2, 3, 4]),
        ("float16", [1.5, 2, 3, 4]),
        ("float64", [1.5, 2, 3, 4]),
    ],
)
def test_types_of_values(tmp_path: Path, dtype: str, values) -> None:
    save_parquet(tmp_path / "data", pa.table({"y": np.array(values, dtype)}))
    source = open_dataset(tmp_path, [Tensor("y", dtype, (4,), REPLICATED)], 4)
    found = source.read(0, {"y": (slice(0, 4),)})["y"]
    assert found.dtype == dtype
    assert found.tolist() == values


def with_x(x, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"x": pa.array(x, kind), "labels": np.arange(len(x))})


FLOATS = pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (table(4).select(["x"]), "column 'labels' is missing"),
        (
            table(4).rename_columns(["x", "label", "notes"]),
            "column 'labels' is missing, did you mean 'label'?",
        ),
        (table(4).rename_columns(["x", "labels", "x"]), "column 'x' exists more than once"),
        (with_x([[1.0] * 3]), "column 'x': expected float32 of 3, got: list<element: double>"),
        (with_x([1.0], pa.float32()), "column 'x': expected float32 of 3, got: float"),
        (with_x(["a"]), "column 'x': expected float32 of 3, got: string"),
        (
            with_x([[1] * 2], pa.list_(pa.float32(), 2)),
            "column 'x': expected float32 of 3, got: fixed_size_list<element: float>[2]",
        ),
        (
            with_x([[[[1] * 3]]], pa.list_(pa.list_(FLOATS))),
            "column 'x': expected float32 of 3, "
            "got: list<element: list<element: list<element: float>>>",
        ),
        (
            pa.table(
                {"x": pa.array([[1] * 3], FLOATS), "labels": pa.array([0], pa.timestamp("s"))}
            ),
            "column 'labels': expected int64, got: timestamp[ms]",
        ),
        (table(3), "expected at least a batch of 4, got: 3"),
    ],
)
def test_columns_that_do_not_fit(tmp_path: Path, held: pa.Table, message: str) -> None:
    save_parquet(tmp_path / "data", held)
    with pytest.raises(UserError) as error:
        open_dataset(tmp_path / "data.parquet", INPUTS, 4)
    assert str(error.value) == f"{tmp_path / 'data.parquet'}: {message}"


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        ([[1] * 3] * 6 + [None], FLOATS, "row 6: expected a value, got: null"),
        ([[1] * 3] * 6 + [[1, None, 1]], FLOATS, "row 6: expected a value, got: null"),
        ([[1] * 3] * 5 + [[1] * 2] * 2, FLOATS, "row 5: expected 3 values, got: 2"),
        ([[1] * 3] * 5 + [[1] * 4, [1] * 2], FLOATS, "row 5: expected 3 values, got: 4"),
        (
            [[[1] * 3]] * 5 + [[[1] * 2], [[1] * 4]],
            pa.list_(FLOATS, 1),
            "row 5: expected 3 values, got: 2",
        ),
        (
            [[1] * 3] * 6 + [None],
            pa.list_(pa.float32(), 3),
            "row 6: expected a value, got: null",
        ),
    ],
)
def test_rows_that_do_not_fit(tmp_path: Path, save, x, kind, message: str) -> None:
    save(tmp_path / "data", with_x(x, kind))
    source = open_dataset(tmp_path, INPUTS, 4)
    source.read(0, WHOLE)
    with pytest.raises(UserError) as error:
        source.read(4, WHOLE)
    (path,) = tmp_path.iterdir()
    assert str(error.value) == f"{path}: column 'x': {message}"


def test_a_tensor_whose_dimensions_lie_otherwise(tmp_path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=[1, 0])
    storage = pa.array([[1] * 6] * 4, pa.list_(pa.float32(), 6))
    save_arrow(tmp_path / "data", pa.table({"x": pa.ExtensionArray.from_storage(kind, storage)}))
    with pytest.raises(UserError, match=r"expected float32 of 2x3, got: .*permutation=\[1,0\]"):
        open_dataset(tmp_path, [IMAGE], 4)


def test_rows_of_a_column_in_pieces() -> None:
    schema = pa.schema({"x": FLOATS})
    column = column_of("a.parquet", schema, INPUTS[0])
    pieces = [[[1.0] * 3] * 2, [[2.0] * 3], [[3.0] * 3]]
    held = pa.chunked_array(pieces, FLOATS)
    assert column.array(held, 0)[:, 0].tolist() == [1, 1, 2, 3]
    pieces[2] = [None]
    with pytest.raises(UserError, match="row 13: expected a value, got: null"):
        column.array(pa.chunked_array(pieces, FLOATS), 10)


@pytest.mark.parametrize("save", SAVES)
def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, save) -> None:
    save(tmp_path / "data", table(400))
    (path,) = tmp_path.iterdir()
    source, size = open_dataset(tmp_path, INPUTS, 4), path.stat().st_size
    source.read(0, WHOLE)
    with path.open("r+b") as file:
        file.truncate(size // 2)
    with pytest.raises(UserError) as error:
        source.read(1, WHOLE)  # of rows that are kept
    assert str(error.value) == (
        f"{path}: has {size // 2} bytes, expected {size} bytes with 400 samples "
        "as when the job began"
    )
    with pytest.raises(UserError, match=r"data\.(parquet|arrow|feather): Arrow"):
        open_dataset(tmp_path, INPUTS, 4)


def test_bytes_that_are_damaged(tmp_path: Path) -> None:
    save_feather(tmp_path / "data", table(4000), 1000)
    path = tmp_path / "data.feather"
    source, held = open_dataset(path, INPUTS, 4), bytearray(path.read_bytes())
    held[1000 : len(held) // 2] = bytes(len(held) // 2 - 1000)
    path.write_bytes(held)
    with pytest.raises(UserError, match=r"data\.feather: "):
        [source.read(position, WHOLE) for position in range(0, 4000, 4)]


def test_a_machine_without_pyarrow(tmp_path: Path, monkeypatch) -> None:
    save_parquet(tmp_path / "data", table(4))
    monkeypatch.delitem(sys.modules, "tensoropt.runtime.training.data.arrow")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError) as error:
        open_dataset(tmp_path, INPUTS, 4)
    assert str(error.value) == (
        f"{tmp_path}: parquet files need pyarrow, expected: pip install 'tensoropt[arrow]'"
    )

"""Samples in .npz files: order, epochs, parts, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_sources import INPUTS, WHOLE, arrays, folder_of, labels_of

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.data.open import open_dataset
from tensoropt.runtime.training.data.source import Facts


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_in_order_and_from_the_start_again(tmp_path: Path, save) -> None:
    source = open_dataset(folder_of(tmp_path / "data", [3, 1, 6], save), INPUTS, 4)
    files = (("part000.npz", 3), ("part001.npz", 1), ("part002.npz", 6))
    assert source.facts == Facts("npz", 10, files)
    found = [label for step in range(5) for label in labels_of(source, 4 * step)]
    assert found == [*range(10), *range(10)]


def test_the_order_of_a_seed_stays_what_it_was(tmp_path: Path) -> None:
    """Checkpoints hold positions: with another order, a run that resumes reads samples twice."""
    source = open_dataset(folder_of(tmp_path / "data", [3, 1, 6]), INPUTS, 4, shuffle=1)
    assert labels_of(source, 0, 10) == [0, 1, 2, 3, 5, 9, 7, 6, 4, 8]
    assert labels_of(source, 10, 10) == [9, 4, 5, 6, 8, 7, 2, 0, 1, 3]


def test_a_part_of_a_batch(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **arrays(10))
    source = open_dataset(tmp_path / "data.npz", INPUTS, 4)
    part = source.read(8, {"x": (slice(2, 4), slice(1, 3)), "labels": (slice(0, 4),)})
    assert part["x"].tolist() == [[0, 0], [1, 1]]
    assert part["x"].dtype == np.float32
    assert part["labels"].tolist() == [8, 9, 0, 1]


def test_arrays_in_fortran_order(tmp_path: Path) -> None:
    held = arrays(10)
    np.savez(tmp_path / "data.npz", x=np.asfortranarray(held["x"]), labels=held["labels"])
    source = open_dataset(tmp_path / "data.npz", INPUTS, 4)
    assert source.read(3, WHOLE)["x"].tolist() == [[n] * 3 for n in (3, 4, 5, 6)]


def test_other_arrays_are_let_be(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **arrays(4), names=np.array(["a"]))
    assert open_dataset(tmp_path / "data.npz", INPUTS, 4).facts.samples == 4


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"x": np.zeros((4, 3), np.float32)}, "input 'labels' is missing"),
        (
            {"x": np.zeros((4, 3), np.float32), "label": np.zeros(4, np.int64)},
            "input 'labels' is missing, did you mean 'label'?",
        ),
        ({**arrays(4), "x": np.zeros((4, 3))}, "input 'x': expected float32, got: float64"),
        (
            {**arrays(4), "x": np.zeros((4, 2), np.float32)},
            "input 'x': expected shape SAMPLESx3, got: 4x2",
        ),
        ({**arrays(4), "labels": np.int64(1)}, "expected shape SAMPLES, got: a scalar"),
        (
            {**arrays(4), "labels": np.zeros(5, np.int64)},
            "input 'labels': expected 4 samples as of 'x', got: 5",
        ),
        (arrays(3), "expected at least a batch of 4, got: 3"),
        (arrays(0), "expected at least a batch of 4, got: 0"),
    ],
)
def test_data_that_does_not_fit(tmp_path: Path, held, message: str) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **held)
    with pytest.raises(UserError) as error:
        open_dataset(path, INPUTS, 4)
    assert str(error.value).startswith(f"{path}: ")
    assert str(error.value).endswith(message)


def test_data_that_is_not_there(tmp_path: Path) -> None:
    for place, message in (
        (tmp_path / "none.npz", "no such file"),
        (
            tmp_path,
            "expected .npz, .parquet, .arrow or .feather files in the folder, got: none",
        ),
    ):
        with pytest.raises(UserError) as error:
            open_dataset(place, INPUTS, 4)
        assert str(error.value) == f"{place}: {message}"
    (tmp_path / "a.npz").write_text("no zip")
    with pytest.raises(UserError, match=r"a\.npz: not an \.npz file"):
        open_dataset(tmp_path, INPUTS, 4)
    (tmp_path / "b.parquet").touch()
    with pytest.raises(UserError, match="expected files of one kind, got: npz and parquet"):
        open_dataset(tmp_path, INPUTS, 4)


def test_an_array_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez_compressed(path, **arrays(1000))
    source = open_dataset(path, INPUTS, 4)
    bytes_ = bytearray(path.read_bytes())
    bytes_[1200:1220] = bytes(20)
    path.write_bytes(bytes_)
    with pytest.raises(UserError, match=r"data\.npz: array '(x|labels)' is damaged: "):
        source.read(0, WHOLE)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, save) -> None:
    path = tmp_path / "data.npz"
    save(path, **arrays(1000))
    source, size = open_dataset(path, INPUTS, 4), path.stat().st_size
    source.read(0, WHOLE)
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(UserError) as error:
        source.read(4, WHOLE)
    assert str(error.value) == (
        f"{path}: has 600 bytes, expected {size} bytes with 1000 samples as when the job began"
    )
    path.unlink()
    with pytest.raises(UserError, match=r"^[^:]*data\.npz: no such file or directory$"):
        source.read(4, WHOLE)

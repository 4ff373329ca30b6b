"""The row of samples that training reads: order, epochs, parts, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensoropt.runtime.plan.layout import parse_layout
from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.data.npz import Ahead, open_dataset

X = Tensor("x", "float32", (4, 3), parse_layout(["S(0)"], [2]))
LABELS = Tensor("labels", "int64", (4,), parse_layout(["R"], [2]))
INPUTS = (X, LABELS)


def arrays(count: int, first: int = 0) -> dict[str, np.ndarray]:
    labels = np.arange(first, first + count)
    return {"x": np.stack([labels] * 3, 1).astype(np.float32), "labels": labels}


def folder_of(place: Path, counts: list[int], save=np.savez) -> Path:
    place.mkdir(exist_ok=True)
    for number, count in enumerate(counts):
        save(place / f"part{number:03d}.npz", **arrays(count, sum(counts[:number])))
    return place


def labels_of(dataset, position: int, count: int = 4) -> list[int]:
    return dataset.read(LABELS, position, (slice(0, count),)).tolist()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_in_order_and_from_the_start_again(tmp_path: Path, save) -> None:
    dataset = open_dataset(folder_of(tmp_path / "data", [3, 1, 6], save), INPUTS, 4)
    assert dataset.samples == 10
    found = [label for step in range(5) for label in labels_of(dataset, 4 * step)]
    assert found == [*range(10), *range(10)]


def test_a_part_of_a_batch(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **arrays(10))
    dataset = open_dataset(tmp_path / "data.npz", INPUTS, 4)
    part = dataset.read(X, 8, (slice(2, 4), slice(1, 3)))
    assert part.tolist() == [[0, 0], [1, 1]]
    assert part.dtype == np.float32


def test_arrays_in_fortran_order(tmp_path: Path) -> None:
    held = arrays(10)
    np.savez(tmp_path / "data.npz", x=np.asfortranarray(held["x"]), labels=held["labels"])
    dataset = open_dataset(tmp_path / "data.npz", INPUTS, 4)
    assert dataset.read(X, 3, (slice(0, 2), slice(0, 3))).tolist() == [[3] * 3, [4] * 3]


def test_other_arrays_are_let_be(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **arrays(4), names=np.array(["a"]))
    assert open_dataset(tmp_path / "data.npz", INPUTS, 4).samples == 4


@settings(max_examples=30, deadline=None)
@given(counts=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_shuffled_epoch_has_every_sample_once(tmp_path_factory, counts, seed) -> None:
    place = folder_of(tmp_path_factory.mktemp("data"), counts)
    dataset = open_dataset(place, INPUTS, 1, seed)
    total = sum(counts)
    first, second = (labels_of(dataset, start, total) for start in (0, total))
    assert sorted(first) == sorted(second) == list(range(total))
    # Any position can be read by itself, by another process.
    again = open_dataset(place, INPUTS, 1, seed)
    assert labels_of(again, total // 2, total) == (first + second)[total // 2 :][:total]


def test_epochs_are_shuffled_differently(tmp_path: Path) -> None:
    dataset = open_dataset(folder_of(tmp_path / "data", [40]), INPUTS, 4, 1)
    assert labels_of(dataset, 0, 40) != labels_of(dataset, 40, 40)


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
        (tmp_path, "expected .npz files in the folder, got: none"),
    ):
        with pytest.raises(UserError) as error:
            open_dataset(place, INPUTS, 4)
        assert str(error.value) == f"{place}: {message}"
    (tmp_path / "a.npz").write_text("no zip")
    with pytest.raises(UserError, match=r"a\.npz: not an \.npz file"):
        open_dataset(tmp_path, INPUTS, 4)


def test_an_array_that_ends_too_soon(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez_compressed(path, **arrays(1000))
    dataset = open_dataset(path, INPUTS, 4)
    bytes_ = bytearray(path.read_bytes())
    bytes_[1200:1220] = bytes(20)
    path.write_bytes(bytes_)
    with pytest.raises(UserError, match=r"data\.npz: array '(x|labels)' is damaged: "):
        for tensor in INPUTS:
            dataset.read(tensor, 0, tuple(slice(0, n) for n in tensor.shape))


def test_batches_read_ahead() -> None:
    read: list[int] = []

    def batch(position: int) -> dict[str, np.ndarray]:
        read.append(position)
        if position == 12:
            raise UserError("data.npz: damaged")
        return {"x": np.array(position)}

    ahead = Ahead(batch)
    assert [int(ahead.get(n, n + 4)["x"]) for n in (0, 4)] == [0, 4]
    assert int(ahead.get(2, 12)["x"]) == 2  # another one than was said
    assert sorted(read[:4]) == [0, 2, 4, 8]
    with pytest.raises(UserError, match="damaged"):
        ahead.get(12, 16)
    assert int(ahead.get(16, 20)["x"]) == 16

"""Samples from code that the user names: what it may return, how it is asked, and what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from budgets import examples
from data_sources import INPUTS, WHOLE, arrays, folder_of, labels_of
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.runtime.layout.mesh_layout import parse_layout
from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.data.dataset import Dataset
from tensoropt.runtime.training.data.open import open_dataset
from tensoropt.runtime.training.data.python import factory_in
from tensoropt.runtime.training.data.samples import PythonSamples
from tensoropt.runtime.training.data.source import Facts
from tensoropt.runtime.training.data.stream import StreamSource


def sample(number: int) -> dict[str, Any]:
    return {name: array[0] for name, array in arrays(1, number).items()}


class Map:
    """Random access; counts what is asked for."""

    def __init__(self, length: int = 10) -> None:
        self.length, self.asked = length, []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.asked.append(index)
        return sample(index)


class Batches(Map):
    """With `__getitems__`, as PyTorch's datasets have it."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        raise AssertionError("one by one")

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        self.asked.append(indices)
        return [sample(index) for index in indices]


class Endless:
    """A stream without end; a generator goes on from where it was told to."""

    def __init__(self) -> None:
        self.position, self.sought, self.made = 0, [], []

    def seek(self, position: int) -> None:
        self.sought.append(position)
        self.position = position

    def __iter__(self) -> Iterator[dict[str, Any]]:
        number = self.position
        while self.goes_on(number):
            self.made.append(number)
            yield sample(number)
            number += 1

    def goes_on(self, number: int) -> bool:
        return True


class Sized(Endless):
    """A stream that is an epoch, another one each time; it may end before."""

    def __init__(self, length: int = 10, end: int = 10) -> None:
        super().__init__()
        self.length, self.end, self.epochs = length, end, []

    def __len__(self) -> int:
        return self.length

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def goes_on(self, number: int) -> bool:
        return number < self.end


def map_of(source: Any, inputs=INPUTS) -> PythonSamples:
    return PythonSamples("loaders:make", source, inputs)


def stream_of(stream: Any) -> StreamSource:
    return StreamSource("loaders:make", stream, INPUTS)


def written(place: Path, text: str) -> str:
    """Write a module whose `make` returns what ``text`` says; returns how it is named."""
    lines = (
        "import sys\n"
        f"sys.path[:0] = [{str(Path(__file__).parent)!r}]\n"
        "import numpy as np\n"
        "def sample(n):\n"
        "    return {'x': np.full(3, n, np.float32), 'labels': n}\n"
        f"def make():\n    return {text}\n"
    )
    place.write_text(lines)
    return f"{place}:make"


@pytest.mark.parametrize("shuffle", [None, 3])
def test_samples_from_a_file(tmp_path: Path, shuffle) -> None:
    """The order is that of one .npz file."""
    source = open_dataset(
        written(tmp_path / "a.py", "[sample(n) for n in range(10)]"), INPUTS, 4, shuffle
    )
    same = open_dataset(folder_of(tmp_path / "npz", [10]), INPUTS, 4, shuffle)
    assert source.facts == Facts("python", 10)
    for position in range(0, 40, 4):
        found, expected = source.read(position, WHOLE), same.read(position, WHOLE)
        assert all(np.array_equal(found[name], expected[name]) for name in WHOLE)
        assert all(found[name].dtype == expected[name].dtype for name in WHOLE)
        assert source.ids(position, 4).tolist() == found["labels"].tolist()


def test_a_module(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "given").mkdir()
    written(tmp_path / "given/loaders.py", "[sample(n) for n in range(4)]")
    monkeypatch.syspath_prepend(tmp_path)
    assert labels_of(open_dataset("given.loaders:make", INPUTS, 4), 0) == [0, 1, 2, 3]
    assert sys.modules["given.loaders"].__file__ == str(tmp_path / "given/loaders.py")


@pytest.mark.parametrize("kind", [Map, Batches])
def test_only_the_samples_of_a_part_are_made(kind: type[Map]) -> None:
    source = kind()
    part = {"x": (slice(1, 3), slice(2, 3)), "labels": (slice(2, 4),)}
    found = map_of(source).take(np.array([7, 8, 3, 9]), part)
    assert found["x"].tolist() == [[8], [3]]
    assert found["labels"].tolist() == [3, 9]
    assert source.asked == ([[8, 3, 9]] if kind is Batches else [8, 3, 9])


def test_a_dataset_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Images(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"x": torch.full((3,), float(index)), "labels": torch.tensor(index)}

    part = torch.utils.data.Subset(Images(), [5, 6, 7, 8])  # has __getitems__
    found = map_of(part).take(np.array([2, 0, 1, 3]), WHOLE)
    assert found["x"].tolist() == [[n] * 3 for n in (7.0, 5.0, 6.0, 8.0)]
    assert found["labels"].tolist() == [7, 5, 6, 8]


class MapDataset:
    """What Grain's MapDataset is to us: an index past the end begins again, as its epochs do."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int | slice) -> dict[str, Any]:
        assert isinstance(index, int)
        return sample(index % 10)


class Repeated(MapDataset):
    """Grain's ``repeat()``."""

    def __len__(self) -> int:
        return sys.maxsize


def test_a_dataset_of_grain() -> None:
    ids = np.array([3, 9, 0, 1])
    assert map_of(MapDataset()).take(ids, WHOLE)["labels"].tolist() == [3, 9, 0, 1]
    endless = map_of(Repeated())
    assert endless.facts.samples is None
    assert labels_of(Dataset(endless), 28) == [8, 9, 0, 1]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"x": np.zeros(3, np.float32)}, "input 'labels' is missing"),
        (
            {"x": np.zeros(3, np.float32), "label": 1},
            "input 'labels' is missing, did you mean 'label'?",
        ),
        ({"x": np.zeros(3), "labels": 1}, "'x': expected float32 of 3, got: float64 of 3"),
        (
            {"x": np.zeros((1, 3), np.float32), "labels": 1},
            "'x': expected float32 of 3, got: float32 of 1x3",
        ),
        ({"x": np.zeros(3, np.float32), "labels": 1.5}, "'labels': expected int64, got: float64"),
        (
            {"x": np.zeros(3, np.float32), "labels": np.int32(1)},
            "'labels': expected int64, got: int32",
        ),
        ((np.zeros(3, np.float32), 1), "expected arrays by input, got: tuple"),
        (None, "expected arrays by input, got: NoneType"),
    ],
)
def test_samples_that_do_not_fit(value: Any, message: str) -> None:
    held = [sample(0), sample(1), value, sample(3)]
    with pytest.raises(UserError) as error:
        map_of(held).take(np.arange(4), WHOLE)
    assert str(error.value) == f"loaders:make: sample 2: {message}"


def test_a_source_that_changes_its_length() -> None:
    source = Map(10)
    samples = map_of(source)
    source.length = 9
    with pytest.raises(UserError) as error:
        samples.take(np.arange(4), WHOLE)
    assert str(error.value) == ("loaders:make: has 9 samples, expected 10 as when the job began")
    stream = Sized(10)
    source = stream_of(stream)
    stream.length = 9
    with pytest.raises(UserError) as error:
        source.read(0, WHOLE)
    assert str(error.value) == ("loaders:make: has 9 samples, expected 10 as when the job began")


def test_too_few_samples_at_once() -> None:
    class Short(Batches):
        def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
            return [sample(index) for index in indices[1:]]

    with pytest.raises(UserError, match="__getitems__: expected 4 samples, got: 3"):
        map_of(Short()).take(np.arange(4), WHOLE)


@examples(40)
@given(
    st.sampled_from([Endless, Sized]),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=5),
)
def test_any_part_of_a_stream(kind: type[Endless], reads) -> None:
    source = stream_of(kind())
    for position, count in reads:
        expected = np.arange(position, position + count) % (10 if kind is Sized else 1000)
        assert labels_of(source, position, count) == expected.tolist()
        assert source.ids(position, count).tolist() == expected.tolist()


def test_a_stream_that_is_read_on_is_not_sought() -> None:
    stream = Sized()
    source = stream_of(stream)
    assert source.facts == Facts("python stream", 10)
    for position in range(4, 32, 4):
        labels_of(source, position, 4)
    assert stream.sought == [4, 0, 0, 0]
    assert stream.epochs == [0, 1, 2, 3]
    assert stream_of(Endless()).facts.samples is None


def test_a_rank_does_not_make_samples_of_others() -> None:
    stream = Endless()
    source = stream_of(stream)
    for position in (0, 8, 16):
        source.read(position, {"x": (slice(4, 8), slice(0, 3)), "labels": (slice(4, 8),)})
    assert stream.made == [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23]
    assert stream.sought == [4, 12, 20]
    sized = Sized()
    source = stream_of(sized)
    for position in (0, 4, 8, 12):
        source.read(position, {"x": (slice(1, 2), slice(0, 3)), "labels": (slice(1, 2),)})
    assert sized.sought == [1, 5, 9, 3]
    assert sized.epochs == [0, 1]


def test_a_stream_that_ends_too_soon() -> None:
    source = stream_of(Sized(length=10, end=7))
    assert labels_of(source, 0, 4) == [0, 1, 2, 3]
    for _ in range(2):  # it stays at an end
        with pytest.raises(UserError) as error:
            labels_of(source, 4, 4)
        assert str(error.value) == "loaders:make: ended after 7 samples, expected 10"
    endless = Endless()
    endless.goes_on = lambda number: number < 5  # type: ignore[method-assign]
    with pytest.raises(UserError) as error:
        labels_of(stream_of(endless), 4, 4)
    assert str(error.value) == "loaders:make: ended after 5 samples, expected no end"


def test_numbers_of_python_take_the_type_of_the_input() -> None:
    weight = Tensor("x", "float32", (1,), parse_layout(["R"], [1]))
    part = {"x": (slice(0, 1),)}
    for value in (2, 2.5, True):
        found = map_of([{"x": value}], [weight]).take(np.array([0]), part)["x"]
        assert (found.dtype, found.tolist()) == (np.float32, [value])
    with pytest.raises(UserError, match="'x': expected float32, got: float64"):
        map_of([{"x": np.array(2.0)}], [weight]).take(np.array([0]), part)


def test_what_code_prints_is_no_result(tmp_path: Path, capsys) -> None:
    open_dataset(written(tmp_path / "a.py", "[print(n) or sample(n) for n in range(4)]"), INPUTS, 4)
    assert capsys.readouterr() == ("", "0\n1\n2\n3\n")


def test_a_stream_that_fails() -> None:
    """Whoever asks again is told the same, not that the stream has ended."""

    class Failing(Endless):
        def goes_on(self, number: int) -> bool:
            return number < 6 or 1 // 0 > 0

    source = stream_of(Failing())
    assert labels_of(source, 2, 4) == [2, 3, 4, 5]
    for _ in range(2):
        with pytest.raises(UserError, match="loaders:make: sample 6: ZeroDivisionError"):
            labels_of(source, 6, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "NameError: name 'nothing' is not defined (a.py:7)"),
        ("iter([])", "expected __len__ and __getitem__, or seek and __iter__, got: list_iterator"),
        ("[]", "expected at least a batch of 4, got: 0"),
        ("[sample(n) for n in range(3)]", "expected at least a batch of 4, got: 3"),
        ("[1, 2, 3, 4]", "sample 0: expected arrays by input, got: int"),
        (
            "type('Bad', (), {'__len__': lambda s: 4, '__getitem__': lambda s, i: 1 // i})()",
            "sample 0: ZeroDivisionError: integer division or modulo by zero (a.py:7)",
        ),
        ("type('Bad', (), {'__len__': lambda s: -1, '__getitem__': lambda s, i: 1 // i})()",
         "ValueError: __len__() should return >= 0"),
    ],
)  # fmt: skip
def test_a_factory_that_returns_what_does_not_fit(tmp_path: Path, text: str, message: str) -> None:
    place = written(tmp_path / "a.py", text)
    with pytest.raises(UserError) as error:
        open_dataset(place, INPUTS, 4)
    assert str(error.value) == f"{place}: {message}"


def test_a_factory_that_is_not_there(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    written(tmp_path / "a.py", "[]")
    (tmp_path / "bad.py").write_text("import no_such_thing\n")
    (tmp_path / "worse.py").write_text("import no_such_thing\n")
    for place, message in (
        (f"{tmp_path}/a.py:made", f"{tmp_path}/a.py has no 'made', did you mean 'make'?"),
        (f"{tmp_path}/b.py:make", f"no file {tmp_path}/b.py"),
        (
            f"{tmp_path}/bad.py:make",
            "ModuleNotFoundError: No module named 'no_such_thing' (bad.py:1)",
        ),
        ("worse:make", "ModuleNotFoundError: No module named 'no_such_thing' (worse.py:1)"),
        (
            "not_there.loaders:make",
            "no module 'not_there.loaders', expected one that is installed or on PYTHONPATH, "
            "or a file: not_there/loaders.py",
        ),
    ):
        with pytest.raises(UserError) as error:
            open_dataset(place, INPUTS, 4)
        assert str(error.value) == f"{place}: {message}"


def test_a_stream_cannot_be_shuffled(tmp_path: Path) -> None:
    stream = (
        "type('Ones', (), {'seek': lambda s, p: None, "
        "'__iter__': lambda s: (sample(1) for _ in iter(int, 1))})()"
    )
    place = written(tmp_path / "a.py", stream)
    assert labels_of(open_dataset(place, INPUTS, 4), 7) == [1] * 4
    with pytest.raises(UserError) as error:
        open_dataset(place, INPUTS, 4, shuffle=0)
    assert str(error.value) == (
        f"shuffle: {place} is a stream or has no end, expected it to shuffle by itself"
    )


def test_what_names_code(tmp_path: Path, monkeypatch) -> None:
    """A file that is there is a file, whatever it is called."""
    monkeypatch.chdir(tmp_path)
    assert factory_in("a.b:make") == ("a.b", "make")
    assert factory_in("some/where.py:make") == ("some/where.py", "make")
    for place in ("data.npz", "a/b:make", "a.py:", ":make", "a.py:b.c", "a:b/c", "C:\\data"):
        assert factory_in(place) is None
    Path("a.b:make").touch()
    assert factory_in("a.b:make") is None

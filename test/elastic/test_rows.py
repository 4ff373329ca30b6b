"""Numbered lines of a file: appended, found, taken out, and what a crash leaves."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.elastic.rows import Rows
from tensoropt.runtime.support.errors import UserError

NUMBERS = st.sets(st.integers(1, 60), max_size=30).map(sorted)
BOUND = st.integers(0, 61)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


@contextmanager
def written(path: Path, numbers: Iterable[int], *, flush_s: float = 0.5) -> Iterator[Rows]:
    with closing(Rows(path, "n", flush_s=flush_s)) as rows:
        for number in numbers:
            rows.append({"n": number, "text": "x" * number})
        yield rows


def numbers_of(rows: Rows, after: int = 0, limit: int | None = None) -> list[int]:
    return [facts["n"] for facts in rows.rows_after(after, limit)]


@examples(40)
@given(NUMBERS, BOUND)
def test_lines_after_a_number(numbers: list[int], after: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        written(Path(folder) / "rows.jsonl", numbers) as rows,
    ):
        assert numbers_of(rows, after) == [number for number in numbers if number > after]
        assert rows.last() == max(numbers, default=0)


@examples(40)
@given(NUMBERS, BOUND)
def test_lines_are_taken_out(numbers: list[int], after: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        written(Path(folder) / "rows.jsonl", numbers) as rows,
    ):
        rows.truncate(after)
        rows.append({"n": 100})
        assert numbers_of(rows) == [*(number for number in numbers if number <= after), 100]


def test_a_limit_keeps_the_last(path: Path) -> None:
    with written(path, range(1, 100)) as rows:
        assert numbers_of(rows, 0, 3) == [97, 98, 99]
        assert numbers_of(rows, 98, 3) == [99]


def test_half_a_line_is_none(path: Path) -> None:
    with written(path, [1, 2]):
        pass
    with path.open("ab") as file:
        file.write(b'{"n": 3, "te')
    with written(path, []) as rows:
        assert numbers_of(rows) == [1, 2]
        rows.append({"n": 3})
        assert numbers_of(rows) == [1, 2, 3]


def test_numbers_rise_also_after_opening_again(path: Path) -> None:
    with written(path, [1, 2]):
        pass
    with written(path, []) as rows, pytest.raises(ValueError, match="more than 2, got: 2"):
        rows.append({"n": 2})


def test_lines_wait_for_one_flush(path: Path) -> None:
    with written(path, [1, 2], flush_s=1000.0) as rows:
        assert path.read_bytes().count(b"\n") == 1
        rows.flush()
        assert path.read_bytes().count(b"\n") == 2


def test_a_spoilt_line_is_named(path: Path) -> None:
    path.write_text('{"n": 1}\n{"m": 2}\n')
    with pytest.raises(UserError, match=r"rows.jsonl: expected lines with 'n', got: b'\{\"m\""):
        Rows(path, "n").rows_after(0)


def test_a_long_line_is_found(path: Path) -> None:
    with written(path, [1, 200_000, 200_001]) as rows:
        assert rows.last() == 200_001
        assert numbers_of(rows, 1) == [200_000, 200_001]

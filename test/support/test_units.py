"""Bytes and seconds as people write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes, format_seconds, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("4096B", 4096),
        ("16GiB", 16 * 2**30),
        ("1.5GB", 1_500_000_000),
        ("80 gb", 80 * 10**9),
        (".5 KiB", 512),
        ("2tib", 2 * 2**40),
    ],
)
def test_amounts(text: str, size: int) -> None:
    assert parse_bytes(text, "--memory") == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1", "0", "1 2", "1e9", "3 GiBs", "inf", "nan", "1GiB x"]
)
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(UserError, match=r"^--memory: expected a positive amount such as 16GiB"):
        parse_bytes(text, "--memory")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (123456, "121 KiB"),
        (10 * 2**20, "10.0 MiB"),
        (2**60, "1024 PiB"),
    ],
)
def test_sizes_have_three_digits(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(0.0, "0 s"), (1.0, "1.00 s"), (0.9999, "1.00 s"), (0.0123, "12.3 ms"), (45e-6, "45.0 us"),
     (1e-9, "1.00 ns"), (2e-10, "0.20 ns"), (123.4, "123 s")],
)  # fmt: skip
def test_times_have_three_digits(time_s: float, text: str) -> None:
    assert format_seconds(time_s) == text


@given(st.integers(1, 2**58))
def test_a_size_reads_back_within_its_digits(size: int) -> None:
    assert parse_bytes(format_bytes(size), "--memory") == pytest.approx(size, rel=6e-3)

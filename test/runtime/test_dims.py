"""Symbolic dimensions that are sums: `--dim` and the shapes of inputs say what they come to."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.runtime.layout.mesh_layout import parse_layout
from tensoropt.runtime.plan.dims import (
    Sizes,
    bound,
    divisor_of,
    mean_of,
    parse_ranges,
    sizes_text,
    terms,
)
from tensoropt.runtime.plan.plan import Tensor, settle_dims
from tensoropt.runtime.session import inputs as session_inputs
from tensoropt.runtime.session.inputs import make_inputs
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.job import DRAWS, Job
from tensoropt.runtime.support.rank_options import SessionOptions
from tensoropt.runtime.text.decoder import decoder_of

NAMES = st.sampled_from(["batch", "past", "sequence", "batch size", "z:0"])


@given(st.lists(st.lists(NAMES | st.integers(0, 9), min_size=1, max_size=3), min_size=1), st.data())
def test_a_name_comes_to_what_its_terms_do(
    sum_: list[list[str | int]], data: st.DataObject
) -> None:
    name = " + ".join("*".join(map(str, product)) for product in sum_)
    used = sorted({x for product in sum_ for x in product if isinstance(x, str)})
    sizes = {x: data.draw(st.integers(0, 50)) for x in used}
    expected = sum(int(np.prod([sizes.get(str(x), x) for x in product])) for product in sum_)
    assert set(terms(name)) == set(used)
    assert bound(name, sizes) == expected
    part = dict(list(sizes.items())[::2])
    once = bound(name, part)
    assert (bound(once, sizes) if isinstance(once, str) else once) == expected


@pytest.mark.parametrize(
    ("name", "sizes", "found"),
    [
        ("past + sequence", {"past": 12}, "12 + sequence"),
        ("past + sequence", {"batch": 12}, "past + sequence"),
        ("past + sequence", {"past + sequence": 7, "past": 1, "sequence": 2}, 7),
        ("past+1", {"past": 12}, 13),
        ("2*s + 3*t", {"s": 4}, "2*4 + 3*t"),
        ("batch size", {"batch size": 8, "batch": 2}, 8),
    ],
)
def test_bound(name: str, sizes: dict[str, int], found: int | str) -> None:
    assert bound(name, sizes) == found


def test_what_the_flags_say() -> None:
    texts = ["batch=8", "x:0=0", "past + sequence=12", "a=b=3"]
    assert parse_ranges(texts) == {"batch": 8, "x:0": 0, "past + sequence": 12, "a=b": 3}


@pytest.mark.parametrize("text", ["b=", "b=x", "b=1.5", "b=-1", "b=4294967296", "b=²"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match=r"--dim b: expected a whole number from 0 to 2147483648"):
        parse_ranges([text])


WHOLE = parse_layout(["R"], [2])
TENSORS = (
    Tensor("mask", "float32", ("batch", "past + sequence"), WHOLE),
    Tensor("cache", "float32", ("batch", "past", 4), WHOLE),
    Tensor("ids", "float32", ("batch", "sequence"), WHOLE),
)


def test_drawn_inputs_have_the_sum() -> None:
    job = Job((), dims={"batch": 2, "past": 12, "sequence": 4})
    assert make_inputs(job, TENSORS).shapes["mask"] == (2, 16)


@pytest.mark.parametrize("placement", ["S(0)", "S(1)", "R"])
def test_a_rank_keeps_no_more_of_an_input_than_its_part(placement: str) -> None:
    tensor = Tensor("x", "float32", (8, 4), parse_layout([placement], (2,)))
    inputs = make_inputs(Job(()), [tensor])
    part = inputs.part("x", 1)
    np.testing.assert_array_equal(part, tensor.layout.part_of(inputs.array("x"), 1))
    held = part if part.base is None else part.base
    assert held.nbytes == part.nbytes


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
@pytest.mark.parametrize("placement", ["S(0)", "S(1)", "S(2)", "R"])
@pytest.mark.parametrize("shape", [(2, 6, 274), (6, 352, 2), (2344, 2, 2), (2, 2, 2)])
def test_a_large_input_is_drawn_as_a_part(
    shape: tuple[int, ...], placement: str, dtype: str, draw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its values are those that another rank draws, whatever the blocks are."""
    monkeypatch.setattr(session_inputs, "_BLOCK", 1 << 10)
    tensor = Tensor("x", dtype, shape, parse_layout([placement], (2,)))
    inputs = make_inputs(Job((), draw=draw), [tensor])
    whole = inputs.array("x")
    for rank in range(2):
        part = inputs.part("x", rank)
        assert part.flags.c_contiguous
        np.testing.assert_array_equal(part, tensor.layout.part_of(whole, rank))


def test_a_part_of_a_large_input_takes_little_more_memory() -> None:
    tensor = Tensor("x", "float32", (4, 4, 1 << 20), parse_layout(["S(1)"], (4,)))
    inputs = make_inputs(Job(()), [tensor])
    tracemalloc.start()
    part = inputs.part("x", 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert part.nbytes < peak < 1.5 * part.nbytes


def test_a_missing_size_is_the_plans() -> None:
    job = Job((), dims={"batch": 2, "past": 12})
    inputs = make_inputs(job, TENSORS)
    assert (inputs.shapes["mask"], inputs.assumed) == ((2, 13), {"sequence": 1})
    inputs = make_inputs(job, TENSORS, {"sequence": range(2, 9, 2)})
    assert (inputs.shapes["ids"], inputs.assumed) == ((2, 4), {"sequence": 4})


ALLOWED = {"batch": range(8, 9), "past": range(16, 65, 16)}


@pytest.mark.parametrize("past", ["16..64:16", range(16, 65, 16)])
def test_sizes_of_the_plan_may_be_repeated(past: object) -> None:
    dims = SessionOptions(dims={"batch": 8, "past": past, "sequence": 3}).dims  # type: ignore[dict-item]
    assert settle_dims(dims, TENSORS, ALLOWED) == {"sequence": 3}
    assert settle_dims({"past": 32}, TENSORS, ALLOWED) == {"past": 32}
    pairs = SessionOptions(dims={"past": (1, 4096), "batch": (8, 8)}).dims
    assert pairs == {"past": "1..4096", "batch": 8}


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"batch": 4}, "dims batch: expected 8 as the plan has it, got: 4"),
        ({"batch": "1..8"}, "dims batch: expected 8 as the plan has it, got: 1..8"),
        ({"past": "1..64"}, "dims past: expected from 16 to 64 in steps of 16 as the plan has it, "
            "got: 1..64"),
        ({"sequence": "1..8"}, "dims sequence: expected one size, as the plan leaves it open, "
            "got: 1..8"),
        ({"bach": 8}, "dims bach: no input has such a dimension, did you mean 'batch'?"),
    ],
)  # fmt: skip
def test_sizes_other_than_the_plans_are_refused(dims: dict[str, int | str], message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        settle_dims(dims, TENSORS, ALLOWED)


@pytest.mark.parametrize("size", [-1, "8", "many", (3, 1), (1, 2, 3), range(5, 0, -1), [1, 4], 1.5])
def test_sizes_of_another_kind(size: object) -> None:
    with pytest.raises(UserError, match="dims: expected a dictionary of sizes from 0 to"):
        SessionOptions(dims={"past": size})  # type: ignore[dict-item]


@pytest.mark.parametrize("length", [16, 15])
def test_arrays_of_a_file_must_add_up(length: int, tmp_path: Path) -> None:
    shapes = {"mask": (2, length), "cache": (2, 12, 4), "ids": (2, 4)}
    np.savez(tmp_path / "in.npz", **{n: np.zeros(s, np.float32) for n, s in shapes.items()})
    job = Job((), inputs=str(tmp_path / "in.npz"))
    if length == 16:
        assert make_inputs(job, TENSORS).shapes == shapes
        return
    with pytest.raises(UserError, match=r"'mask': expected shape batchxpast \+ sequence with"):
        make_inputs(job, TENSORS)


@pytest.mark.parametrize(
    ("text", "sizes", "mean"),
    [
        ("1..4096", range(1, 4097), 2048),
        ("8..64:8", range(8, 65, 8), 32),
        ("0..3", range(4), 1),
        ("8..8", 8, 8),
        ("7", 7, 7),
    ],
)
def test_what_ranges_say(text: str, sizes: Sizes, mean: int) -> None:
    assert parse_ranges([f"past + 1={text}"]) == {"past + 1": sizes}
    assert mean_of(sizes) == mean
    assert text == "8..8" or sizes_text(sizes) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("8..", "expected FIRST..LAST or FIRST..LAST:STEP such as 1..4096 or 8..64:8, got: '8..'"),
        ("1..8:", "expected FIRST..LAST or FIRST..LAST:STEP"),
        ("-1..8", "expected FIRST..LAST or FIRST..LAST:STEP"),
        ("8..1", "expected the smaller size first, got: '8..1'"),
        ("0..0", "expected sizes above 0, got: '0..0'"),
        ("1..8:0", "expected a step of 1 or more, got: '1..8:0'"),
        ("9..15:8", "expected a step that leads from 9 to 15, got: '9..15:8', which ends at 9"),
        ("1..9999999999", "expected a whole number from 0 to 2147483648, got: '9999999999'"),
    ],
)
def test_ranges_that_are_none(text: str, why: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_ranges([f"n={text}"])
    assert str(refused.value).startswith(f"--dim n: {why}")


@given(st.integers(0, 60), st.integers(1, 30), st.integers(0, 20), st.integers(0, 9))
def test_what_divides_a_dimension_divides_all_that_it_may_be(
    first: int, step: int, count: int, other: int
) -> None:
    sizes = range(first, first + step * count + 1, step)
    for name in ("n", "2*n", "n + 4*m", "n*m + n"):
        found = divisor_of(name, {"n": sizes})
        assert found
        assert all(int(bound(name, {"n": n, "m": other})) % found == 0 for n in sizes)


def test_missing_sizes_of_caches_are_named_together() -> None:
    shape = ("batch", "heads", "past", "key size")
    pasts = [Tensor(f"past.{name}", "float32", shape, WHOLE) for name in "kv"]
    presents = [Tensor(f"present.{name}", "float32", shape, WHOLE) for name in "kv"]
    ids = Tensor("input_ids", "int64", ("batch", "sequence"), WHOLE)
    scores = Tensor("logits", "float32", ("batch", "sequence", 8), WHOLE)
    rows = [
        {"past": past.name, "present": present.name, "dim": 2, "in_place": False}
        for past, present in zip(pasts, presents, strict=True)
    ]
    plan: Any = SimpleNamespace(
        folder="plan",
        inputs=(ids, *pasts),
        outputs=(scores, *presents),
        document={"caches": rows},
    )
    expected = "plan: caches have open sizes, expected --dim heads=SIZE --dim 'key size=SIZE'"
    with pytest.raises(UserError, match=f"^{re.escape(expected)}$"):
        decoder_of(plan)
    assert decoder_of(plan, {"heads": 2, "key size": 4}).caches[0].shape(3, 5, {
        "heads": 2, "key size": 4,
    }) == (3, 2, 5, 4)  # fmt: skip

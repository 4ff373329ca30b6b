"""Runs of a decoder on two ranks update its caches in place, with the results of one device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from handmade_decoder import write_decoder
from mpi_ranks import under_mpi

from tensoropt import Session
from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.runtime.inference.jobs import check_plan

BATCH, HEADS, SIZE, TOKENS, LAYERS = 2, 4, 8, 16, 2
CASES = Path(__file__).with_name("cache_cases.py")
STEP = {"batch": BATCH, "sequence": 1, "past": TOKENS}
FIXED, GROWN = {**STEP, "total": TOKENS}, {**STEP, "total": TOKENS + 1}
PLANNED = {"fixed": FIXED, "open": {}, "grown": GROWN}
"""Sizes by how a plan was made: with caches of one fixed size, of open sizes, of two fixed ones."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model and a plan of each kind, whose heads are split."""
    path = tmp_path_factory.mktemp("decoder")
    model = write_decoder(
        path / "m.onnx", layers=LAYERS, heads=HEADS, shared=HEADS, size=SIZE, in_place=True
    )
    for name, dims in PLANNED.items():
        sizes = [flag for dim in dims.items() for flag in ("--dim", "{}={}".format(*dim))]
        asked = ["--mesh", "2", "--pin", "past_key_values.*=S(1)", *sizes]
        assert compile_model([str(model), *asked, "-o", str(path / name)]) == 0
    return path


@pytest.mark.parametrize(("name", "dims"), [("fixed", FIXED), ("open", GROWN)])
def test_the_next_cache_is_where_the_last_one_was(
    folder: Path, name: str, dims: dict[str, int]
) -> None:
    open_dims = {} if PLANNED[name] else dims
    found = under_mpi(2, CASES, folder / name, json.dumps(open_dims))
    for caches in found["ranks"]:
        assert len(caches) == 2 * LAYERS
        for cache in caches.values():
            assert cache["stays"]
            assert cache["shape"] == [BATCH, HEADS // 2, dims["total"], SIZE]
            assert cache["changed"] == [token for token in [dims["total"] - 1] if token < TOKENS]
            assert cache["last"]


def test_fixed_sizes_that_differ_leave_no_room(folder: Path) -> None:
    assert under_mpi(2, CASES, folder / "grown", "{}")["ranks"] == [{}, {}]


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("int_range", [(1, 2), (0, 2)])
def test_a_check(folder: Path, name: str, int_range: tuple[int, int]) -> None:
    """Masks that are drawn give sequences of any lengths: behind them, caches keep their values."""
    dims = {} if PLANNED[name] else GROWN
    done = check_plan(
        folder / name, folder / "m.onnx", dims=dims, int_range=int_range, runs=2, threads=1
    )
    assert done.passed, done


@pytest.mark.parametrize("name", PLANNED)
def test_a_session_leaves_what_it_is_given(folder: Path, name: str) -> None:
    sizes = PLANNED[name] or GROWN
    stock = onnxruntime.InferenceSession(folder / "m.onnx", providers=["CPUExecutionProvider"])
    names = [end.name for end in stock.get_outputs()]
    random = np.random.default_rng(0)
    with Session(folder / name, threads=1) as session:
        for asked in (None, ["logits"], None):  # an output that nobody asks for is still written
            fed = {
                end.name: random.normal(size=(BATCH, HEADS, TOKENS, SIZE)).astype(np.float32)
                for end in stock.get_inputs()
                if end.name.startswith("past")
            }
            fed["input_ids"] = random.integers(0, 48, (BATCH, 1))
            fed["attention_mask"] = np.ones((BATCH, sizes["total"]), np.int64)
            before = {key: array.copy() for key, array in fed.items()}
            expected = dict(zip(names, stock.run(None, fed), strict=True))
            found = session.run(fed, asked)
            assert list(found) == (asked or names)
            for key, array in found.items():
                np.testing.assert_allclose(array, expected[key], atol=1e-5)
            kept = {key: array.copy() for key, array in found.items()}
            session.step_times_s(2)
            for mine, copy in ((fed, before), (found, kept)):
                for key, array in mine.items():
                    np.testing.assert_array_equal(array, copy[key])

"""When requests share a run, by the shapes of a plan alone."""

from __future__ import annotations

import pytest

from tensoropt.runtime.support.errors import UserError
from tensoropt.serving.batching.sizes import Batching, batching_of
from tensoropt.serving.protocol.tensors import TensorSpec


def _specs(*shapes):
    return [TensorSpec(f"t{index}", "float32", shape) for index, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ([(8, 3)], [(8, 10)], Batching(8, is_fixed=True)),
        ([(1, 3)], [(1, 10)], Batching(1, is_fixed=True)),
        ([("n", 3), ("n", "seq")], [("n",)], Batching(5, is_fixed=False)),
        ([(8, 3), (8,)], [(8, 10), (4, 10)], None),
        ([(8, 3), ()], [(8, 10)], None),
        ([(8, 3)], [()], None),
        ([("n", 3)], [("m", 3)], None),
        ([("n", "n")], [("n", 3)], None),
        ([("n", "n + 1")], [("n", 3)], None),
        ([("2*n", 3)], [("2*n", 3)], None),
        ([(0, 3)], [(0, 3)], None),
        ([], [(8, 3)], None),
    ],
)
def test_dimension_0_is_that_of_samples_if_all_tensors_have_it(inputs, outputs, expected):
    assert batching_of(_specs(*inputs), _specs(*outputs), 5) == expected


def test_fixed_runs_are_filled_up():
    assert Batching(8, is_fixed=True).padded(3) == 8
    assert Batching(8, is_fixed=False).padded(3) == 3


@pytest.mark.parametrize(
    ("most", "size", "runs"), [(None, 8, [2, 2, 4, 8]), (7, 6, [2, 2, 4, 6]), (2, 2, [2, 2])]
)
def test_runs_of_a_range_have_the_sizes_that_the_plan_takes(most, size, runs):
    batching = batching_of(_ranged(), _ranged(), most)
    assert batching is not None
    assert (batching.size, batching.is_fixed) == (size, False)
    assert [batching.padded(samples) for samples in [1, 2, 3, size][: len(runs)]] == runs


def test_a_range_that_begins_above_the_most_samples():
    with pytest.raises(UserError, match="--max-batch: expected at least 2 samples, as the plan"):
        batching_of(_ranged(), _ranged(), 1)


def _ranged() -> list[TensorSpec]:
    return [TensorSpec("x", "float32", ("n", 3), {"n": range(2, 9, 2)})]

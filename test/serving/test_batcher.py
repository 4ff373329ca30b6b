"""Requests in shared runs get their own outputs, whatever else is in the run or fails in it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.runtime.support.errors import UserError
from tensoropt.serving.batching.batcher import Batcher
from tensoropt.serving.batching.sizes import Batching
from tensoropt.serving.protocol.refusals import Reason, RefusedError

FIXED, FREE = Batching(4, is_fixed=True), Batching(4, is_fixed=False)


def _empty(shapes):
    return {name: np.full(shape, np.nan) for name, shape in shapes.items()}


class Runs:
    """Doubles what it is given, and keeps it; samples of a negative value are refused."""

    def __init__(self):
        self.seen = []

    async def __call__(self, make, samples):
        x = make(_empty)["x"]
        self.seen.append((x, samples))
        await asyncio.sleep(0)
        if (x < 0).any():
            raise UserError("negative")
        return {"y": 2 * x}


async def _answers(run, batching, requests, delay_s=0.0, queue=100):
    batcher = Batcher(run, batching, delay_s, queue)
    work = asyncio.create_task(batcher.work())
    found = await asyncio.gather(
        *(batcher.infer({"x": x}) for x in requests), return_exceptions=True
    )
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return found


@examples(60)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2)), min_size=1, max_size=12),
    st.sampled_from([FIXED, FREE, None]),
    st.sampled_from([0.0, 0.001]),
)
def test_each_request_gets_its_own_outputs(sizes, batching, delay_s):
    rng = np.random.default_rng(0)
    requests = [rng.random((samples, width)) for samples, width in sizes]
    runs = Runs()
    answers = asyncio.run(_answers(runs, batching, requests, delay_s))
    for x, answer in zip(requests, answers, strict=True):
        np.testing.assert_array_equal(answer["y"], 2 * x)
    assert sum(samples for _, samples in runs.seen) == (
        len(requests) if batching is None else sum(map(len, requests))
    )
    for x, samples in runs.seen:
        assert not np.isnan(x).any()
        assert len(x) == (4 if batching is FIXED else len(x))
        assert batching is None or samples <= 4


def test_what_fills_a_run_up_is_a_sample_of_it():
    runs = Runs()
    asyncio.run(_answers(runs, FIXED, [np.array([[1.0], [2.0]])]))
    np.testing.assert_array_equal(runs.seen[0][0], [[1.0], [2.0], [2.0], [2.0]])


def test_a_full_request_goes_as_it_is():
    runs, x = Runs(), np.ones((4, 1))
    asyncio.run(_answers(runs, FIXED, [x]))
    assert runs.seen[0][0] is x


def test_what_is_wrong_with_one_is_no_fault_of_the_others():
    good, bad = np.ones((1, 1)), -np.ones((1, 1))
    first, refused, last = asyncio.run(_answers(Runs(), FIXED, [good, bad, good]))
    np.testing.assert_array_equal(first["y"], [[2.0]])
    np.testing.assert_array_equal(last["y"], [[2.0]])
    assert isinstance(refused, RefusedError)
    assert refused.reason is Reason.INVALID
    assert str(refused) == "negative"


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"x": np.ones((5, 1))}, "samples: expected 1 to 4, got: 5"),
        ({"x": np.ones((0, 1))}, "samples: expected 1 to 4, got: 0"),
        ({"x": np.ones((2, 1)), "z": np.ones((3, 1))}, "input 'z': expected 2 samples, got: 3"),
    ],
)
def test_samples_that_no_run_has(inputs, text):
    async def ask():
        await Batcher(Runs(), FIXED, 0.0, 10).infer(inputs)

    with pytest.raises(RefusedError, match=text):
        asyncio.run(ask())


def test_the_queue_has_an_end_and_who_gives_up_leaves_it():
    async def ask():
        batcher = Batcher(Runs(), FIXED, 0.0, queue=2)  # nobody works
        first = asyncio.create_task(batcher.infer({"x": np.ones((1, 1))}))
        second = asyncio.create_task(batcher.infer({"x": np.ones((1, 1))}))
        await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="too many requests: 2 wait already"):
            await batcher.infer({"x": np.ones((1, 1))})
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert len(batcher) == 1
        batcher.refuse_all(RefusedError(Reason.UNAVAILABLE, "the end"))
        with pytest.raises(RefusedError, match="the end"):
            await second
        assert len(batcher) == 0

    asyncio.run(ask())

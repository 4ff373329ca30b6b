"""The load of a replica by formulas, against a simulation of its steps with random requests."""

from __future__ import annotations

import random
import statistics
from collections import deque
from dataclasses import replace

import pytest

from tensoropt.compiler.planning.service import (
    Deployment,
    ServiceLevel,
    StepTimes,
    best,
    frontier_of,
    loaded,
)


def simulated(
    level: ServiceLevel, times: StepTimes, rate: float, seed: int
) -> tuple[float, float, float]:
    """Return mean times of the first and of other tokens, and the mean number of texts.

    A replica with any number of slots reads one part of a prompt after each step of the others.
    """
    random_s, arrivals, now_s = random.Random(seed), deque[float](), 0.0
    for _ in range(4000):
        now_s += random_s.expovariate(rate)
        arrivals.append(now_s)
    now_s, reading, left = 0.0, 0, list[int]()
    firsts, tokens, texts = list[float](), list[float](), list[float]()
    while arrivals:
        begun_s = now_s
        if arrivals[0] <= now_s:
            now_s += times.prompt_s / level.parts
            reading += 1
            if reading == level.parts:
                firsts.append(now_s - arrivals.popleft())
                left.append(level.answer)
                reading = 0
        if left:
            now_s += times.step_s
            texts.append(len(left))
            tokens.append(now_s - begun_s)
            left = [count - 1 for count in left if count > 1]
        elif begun_s == now_s:
            now_s = arrivals[0]
    return statistics.mean(firsts), statistics.mean(tokens), statistics.mean(texts)


@pytest.mark.parametrize("texts", [4, 16])
@pytest.mark.parametrize("prompt_s", [0.01, 0.04])
def test_random_requests_find_these_times(texts: int, prompt_s: float) -> None:
    level = ServiceLevel(rate=1.0, prompt=1024, answer=128)
    times = StepTimes(0.01, prompt_s)
    own = loaded(level, times, ranks=1, texts=texts, process_bytes=0)
    assert own is not None
    first_s, token_s, mean_texts = simulated(level, times, own.rate, seed=3)
    assert first_s == pytest.approx(own.first_s, rel=0.2)
    assert token_s == pytest.approx(own.token_s, rel=0.1)
    assert mean_texts == pytest.approx(texts, rel=0.15)


def test_prompts_that_arrive_faster_than_they_are_read() -> None:
    level = ServiceLevel(rate=1.0, prompt=4096, answer=1)
    assert loaded(level, StepTimes(0.01, 0.5), ranks=1, texts=64, process_bytes=0) is None


def test_the_frontier_and_the_best() -> None:
    first = Deployment(1, 2, 4, 8, 100, 1.0, first_s=0.4, token_s=0.02)
    slower = replace(first, first_s=0.5)
    larger = replace(first, replicas=4, token_s=0.01)
    assert frontier_of([larger, slower, first]) == [first, larger]
    level = ServiceLevel(rate=2.0, prompt=8, answer=8)
    assert best([first, larger], level) == first
    assert best([first, larger], replace(level, token_s=0.015)) == larger
    assert best([first, larger], replace(level, first_s=0.1)) is None

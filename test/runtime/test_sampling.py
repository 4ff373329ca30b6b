"""The choice of a token by its scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.sampling import NO_TOKEN, Sampler, Sampling


def test_sampling_keeps_to_the_likeliest() -> None:
    scores = np.log(np.array([[0.5, 0.3, 0.15, 0.05]] * 500, np.float32))
    for how, kept in (
        (Sampling(1.0), {0, 1, 2, 3}),
        (Sampling(1.0, top_k=2), {0, 1}),
        (Sampling(1.0, top_p=0.79), {0, 1}),
        (Sampling(1.0, top_p=0.81), {0, 1, 2}),
        (Sampling(1.0, min_p=0.25), {0, 1, 2}),
        (Sampling(1.0, top_k=3, min_p=0.55), {0, 1}),
        (Sampling(1.0, biases=[(3, 1.0), (0, -99.0)]), {1, 2, 3}),
        (Sampling(1e-3), {0}),
        (Sampling(), {0}),
    ):
        assert {Sampler(how, number).pick(row) for number, row in enumerate(scores)} == kept


@given(st.integers(2, 3000), st.floats(0.01, 0.99), st.none() | st.integers(1, 40))
def test_sampling_from_the_fewest_tokens(count: int, top_p: float, top_k: int | None) -> None:
    """A large vocabulary is not sorted whole; the tokens are those of the sorted one."""
    scores = np.random.default_rng(count).normal(0, 2, count).astype(np.float32)
    order = np.argsort(-scores, kind="stable")[:top_k]
    likely = np.exp(scores[order].astype(np.float64))
    fewest = int(np.searchsorted((likely / likely.sum()).cumsum(), top_p)) + 1
    sampler = Sampler(Sampling(1.0, top_k, top_p), 0)
    tokens = sampler._candidates(np.exp(scores.astype(np.float64)))
    assert tokens is not None
    assert abs(len(tokens) - min(fewest, len(order))) <= 1  # a sum that rounds
    assert list(tokens) == list(order[: len(tokens)])
    assert sampler.pick(scores) in tokens


def test_sampling_draws_by_probability() -> None:
    scores = np.log(np.array([[0.6, 0.4]] * 4000, np.float32))
    drawn = [Sampler(Sampling(1.0, seed=1), n).pick(row) for n, row in enumerate(scores)]
    assert 0.37 < np.mean(drawn) < 0.43
    warm = [Sampler(Sampling(0.5, seed=1), n).pick(row) for n, row in enumerate(scores)]
    # 0.36 to 0.16
    assert 0.27 < np.mean(warm) < 0.35


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"min_p": 1.5},
        {"seed": -1},
        {"presence_penalty": 3.0},
        {"frequency_penalty": -3.0},
        {"repetition_penalty": 0.0},
        {"biases": [(1, float("nan"))]},
        {"logprobs": 21},
    ],
)
def test_sampling_that_is_refused(wrong) -> None:
    with pytest.raises(UserError, match="expected"):
        Sampling(**wrong)


class Only:
    """Allows a set of tokens, and notes the tokens that are taken."""

    def __init__(self, *tokens: int) -> None:
        self._tokens, self.taken = list(tokens), list[int]()

    def allowed(self, size: int) -> npt.NDArray[np.bool_]:
        return np.isin(np.arange(size), self._tokens)

    def take(self, token: int) -> None:
        self.taken.append(token)


@given(st.integers(0, 1000), st.sets(st.integers(0, 19)), st.sampled_from([0.0, 0.1, 1.0]))
def test_only_allowed_tokens_are_chosen(seed: int, tokens: set[int], temperature: float) -> None:
    scores = np.random.default_rng(seed).normal(0, 30, 20).astype(np.float32)
    only = Only(*tokens)
    sampler = Sampler(Sampling(temperature, top_k=3, top_p=0.9, seed=seed), 0, (), only)
    found = [sampler.pick(scores) for _ in range(5)]
    assert {*found} <= (tokens or {NO_TOKEN})
    assert only.taken == (found if tokens else [])


def test_the_last_token_is_not_chosen_by_rounding() -> None:
    sampler = Sampler(Sampling(1.0), 0, (), Only(0))
    sampler._random = type("Ones", (), {"random": lambda _: np.nextafter(1.0, 0.0)})()
    assert sampler.pick(np.zeros(3, np.float32)) == 0


def test_probabilities_of_impossible_tokens_are_numbers() -> None:
    sampler = Sampler(Sampling(logprobs=1), 0)
    likely = sampler.likely(np.array([0.0, -np.inf], np.float32), 1)
    assert likely == [(1, -9999.0), (0, 0.0)]

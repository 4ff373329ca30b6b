"""The choice of a token by its scores."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.isolation import TextFailedError
from tensoropt.runtime.text.sampling import Sampler, Sampling


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
    ("name", "values", "expected"),
    [
        ("temperature", [-1.0, None, "1"], "a number from 0"),
        ("top_k", [0, 2.5, True], "a whole number from 1 to 9223372036854775807"),
        ("top_p", [0.0, 1.5], "a number above 0, at most 1"),
        ("min_p", [-0.1, 1.5], "a number from 0 to 1"),
        ("seed", [-1, 1.5, 1 << 64], "a whole number from 0 to 18446744073709551615"),
        ("presence_penalty", [3.0, -2.1], "a number from -2 to 2"),
        ("frequency_penalty", [-3.0], "a number from -2 to 2"),
        ("repetition_penalty", [0.0, 5e-324, 1e-3, 101], "a number from 0.01 to 100"),
        ("logprobs", [21, -1, 1.5], "a whole number from 0 to 20"),
        ("prompt_logprobs", [21], "a whole number from 0 to 20"),
        (
            "biases",
            [[(1, np.nan)], [(1, np.inf)], [(1.5, 1.0)], [(-1, 1.0)], [(1, "2")], [3], 5],
            "pairs of a token and a finite bias",
        ),
    ],
)
def test_sampling_that_is_refused(name: str, values: list[object], expected: str) -> None:
    numbers = [np.nan, np.inf, -np.inf, 10**400] if name != "seed" else [np.nan, 10**400]
    for value in [*values, *numbers]:
        with pytest.raises(UserError, match=f"^{name}: expected {expected}, got: "):
            Sampling(**{name: value})


def test_numbers_of_numpy_become_those_of_python() -> None:
    """They are sent to the ranks as JSON."""
    found = Sampling(np.float32(0.5), np.int64(3), seed=np.uint64(7), biases=[(np.int32(1), 2)])
    assert asdict(Sampling(0.5, 3, seed=7, biases=((1, 2.0),))) == asdict(found)
    assert json.dumps(asdict(found))


_LARGEST = float(np.finfo(np.float32).max)


@settings(max_examples=50)
@given(
    st.floats(0.0, allow_infinity=False),
    st.floats(0.01, 100.0),
    st.floats(-2.0, 2.0),
    st.floats(-1e30, 1e30),
    st.none() | st.floats(0.0, 1.0, exclude_min=True),
    st.none() | st.integers(1, 9),
    st.lists(st.floats(-_LARGEST, _LARGEST, width=32) | st.just(-np.inf), max_size=6),
)
def test_options_that_are_accepted_keep_scores_finite(
    temperature: float,
    repetition: float,
    penalty: float,
    bias: float,
    top_p: float | None,
    top_k: int | None,
    some: list[float],
) -> None:
    scores = np.array([*some, 1.0, -_LARGEST, _LARGEST], np.float32)
    how = Sampling(
        *(temperature, top_k, top_p),
        repetition_penalty=repetition,
        presence_penalty=penalty,
        frequency_penalty=-penalty,
        biases=[(0, bias), (1, -bias)],
        logprobs=3,
    )
    sampler = Sampler(how, 0, range(len(scores)))
    with np.errstate(invalid="raise", divide="raise"):
        tokens = [sampler.pick(scores) for _ in range(4)]
    for token in tokens:
        assert np.isfinite([value for _, value in sampler.likely(scores, token)]).all()
        assert scores[token] > -np.inf


@pytest.mark.parametrize("score", [np.nan, np.inf])
@pytest.mark.parametrize("how", [Sampling(), Sampling(1.0), Sampling(1.0, top_k=2, top_p=0.5)])
def test_scores_that_are_not_finite(score: float, how: Sampling) -> None:
    scores = np.array([1.0, score, 2.0, -np.inf], np.float32)
    with pytest.raises(TextFailedError, match=f"^scores: expected finite numbers.* got: {score}$"):
        Sampler(how, 0).pick(scores)
    with pytest.raises(TextFailedError, match="scores: expected finite numbers"):
        Sampler(Sampling(prompt_logprobs=1), 0).likely_in_prompt(scores, 0)


def test_no_score_is_finite() -> None:
    with pytest.raises(TextFailedError, match=r"scores: expected finite numbers.* got: -inf"):
        Sampler(Sampling(1.0), 0).pick(np.full(3, -np.inf, np.float32))


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
    if not tokens:
        with pytest.raises(UserError, match="grammar: no token of the model can continue the text"):
            sampler.pick(scores)
        return
    found = [sampler.pick(scores) for _ in range(5)]
    assert {*found} <= tokens
    assert only.taken == found


def test_an_allowed_token_that_the_model_excludes_is_not_chosen() -> None:
    scores = np.array([1.0, -np.inf, 2.0], np.float32)
    assert Sampler(Sampling(1.0), 0, (), Only(0, 1)).pick(scores) == 0
    with pytest.raises(UserError, match="grammar: no token"):
        Sampler(Sampling(1.0), 0, (), Only(1)).pick(scores)


def test_the_last_token_is_not_chosen_by_rounding() -> None:
    sampler = Sampler(Sampling(1.0), 0, (), Only(0))
    sampler._random = type("Ones", (), {"random": lambda _: np.nextafter(1.0, 0.0)})()
    assert sampler.pick(np.zeros(3, np.float32)) == 0


def test_probabilities_of_impossible_tokens_are_numbers() -> None:
    sampler = Sampler(Sampling(logprobs=1), 0)
    likely = sampler.likely(np.array([0.0, -np.inf], np.float32), 1)
    assert likely == [(1, -9999.0), (0, 0.0)]

"""Sizes that the ranks do not divide: parts with padding, in which anything may be.

`check` tries this on every case of every rule; here are the operators of a split vocabulary, whose
splits must be offered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sharding.harness import Case, check, normal

ROWS, WORDS, WIDTH = 6, 251, 4
"""Of 251 words, no number of ranks up to 250 has equal parts; 4 x 63, 5 x 51 and 7 x 36 nearly."""

RANKS = (2, 3, 4, 5, 7)


def _ids(*shape: int) -> Any:
    return np.random.default_rng(0).integers(-WORDS, WORDS, shape)


def _few(*shape: int) -> Any:
    return np.random.default_rng(1).integers(-WIDTH, WIDTH, shape)


SCORES, TABLE = normal(ROWS, WORDS), normal(WORDS, WIDTH)
CASES = {
    "embedding": (Case("Gather", [TABLE, _ids(ROWS)]), "S(0) R -> P(sum)"),
    "scores": (Case("MatMul", [normal(ROWS, WIDTH), normal(WIDTH, WORDS)]), "R S(1) -> S(1)"),
    "scores of a tied table": (
        Case("Gemm", [normal(ROWS, WIDTH), TABLE], {"transB": 1}),
        "R S(0) -> S(1)",
    ),
    "gradient of what is scored": (Case("MatMul", [SCORES, TABLE]), "S(1) S(0) -> P(sum)"),
    "gradient by einsum": (
        Case("Einsum", [SCORES, TABLE], {"equation": "bv,vc->bc"}),
        "S(1) S(0) -> P(sum)",
    ),
    "logarithms": (Case("LogSoftmax", [SCORES], {"axis": 1}), "S(1) -> S(1)"),
    "probabilities": (Case("Softmax", [SCORES], {"axis": 1}), "S(1) -> S(1)"),
    "of the labels": (
        Case("GatherElements", [SCORES, _ids(ROWS, 1)], {"axis": 1}),
        "S(1) R -> P(sum)",
    ),
    "gradient at the labels": (
        Case(
            "ScatterElements",
            [SCORES, _ids(ROWS, 1), normal(ROWS, 1)],
            {"axis": 1, "reduction": "add"},
        ),
        "S(1) R R -> S(1)",
    ),
    "gradient of the embedding": (
        Case("ScatterND", [TABLE, _ids(ROWS, 1), normal(ROWS, WIDTH)], {"reduction": "add"}),
        "S(0) R R -> S(0)",
    ),
    "best": (Case("ArgMax", [SCORES], {"axis": 1}), "S(1) -> R"),
    "mean": (
        Case("ReduceMean", [SCORES, np.array([1])], literals=frozenset({1})),
        "S(1) R -> P(sum)",
    ),
    "largest": (
        Case("ReduceMax", [SCORES, np.array([1])], literals=frozenset({1})),
        "S(1) R -> P(max)",
    ),
    "channels that a convolution makes": (
        Case("Conv", [normal(2, WIDTH, 5), normal(WORDS, WIDTH, 3), normal(WORDS)]),
        "R S(0) S(0) -> S(1)",
    ),
    "channels that it sums": (
        Case("Conv", [normal(2, WORDS, 5), normal(WIDTH, WORDS, 3)]),
        "S(1) S(1) -> P(sum)",
    ),
    "channels that its transpose sums": (
        Case("ConvTranspose", [normal(2, WORDS, 5), normal(WORDS, WIDTH, 3)]),
        "S(1) S(0) -> P(sum)",
    ),
    "maxima": (
        Case("MaxPool", [normal(2, WORDS, 4)], {"kernel_shape": [2]}),
        "S(1) -> S(1)",
    ),
    "samples that are normalised": (
        Case("LayerNormalization", [normal(WORDS, WIDTH), normal(WIDTH), normal(WIDTH, seed=1)]),
        "S(0) R R -> S(0)",
    ),
    "images that are normalised": (
        Case("InstanceNormalization", [normal(WORDS, 2, 3), normal(2), normal(2, seed=1)]),
        "S(0) R R -> S(0)",
    ),
    "channels that are normalised": (
        Case("InstanceNormalization", [normal(2, WORDS, 3), normal(WORDS), normal(WORDS, seed=1)]),
        "S(1) S(0) S(0) -> S(1)",
    ),
    "images normalised by groups": (
        Case(
            "GroupNormalization",
            [normal(WORDS, 4, 3), normal(4), normal(4, seed=1)],
            {"num_groups": 2},
            21,
        ),
        "S(0) R R -> S(0)",
    ),
    "samples of attention": (
        Case("Attention", [normal(WORDS, 2, 3, 4, seed=n) for n in range(3)], version=23),
        "S(0) S(0) S(0) -> S(0)",
    ),
    "rows picked by samples": (Case("Gather", [TABLE, _ids(WORDS)]), "R S(0) -> S(0)"),
    "columns of picked rows": (Case("Gather", [normal(WIDTH, WORDS), _few(3)]), "S(1) R -> S(1)"),
    "quantised rows picked by samples": (
        Case(
            "GatherBlockQuantized",
            [np.zeros((4, 8), np.uint8), _few(WORDS), normal(4, 1)],
            {"bits": 4, "block_size": 16, "quantize_axis": 1},
            1,
            "com.microsoft",
        ),
        "R S(0) R -> S(0)",
    ),
    "elements picked by samples": (
        Case("GatherElements", [normal(WORDS, WIDTH), _few(WORDS, 2)], {"axis": 1}),
        "S(0) S(0) -> S(0)",
    ),
    "elements written by samples": (
        Case(
            "ScatterElements",
            [normal(WORDS, WIDTH), np.zeros((WORDS, 1), np.int64), normal(WORDS, 1)],
            {"axis": 1},
        ),
        "S(0) S(0) S(0) -> S(0)",
    ),
    "columns of written rows": (
        Case("ScatterND", [normal(WIDTH, WORDS), np.array([[1], [-1]]), normal(2, WORDS)]),
        "S(1) R S(1) -> S(1)",
    ),
    "channels of their own groups": (
        Case(
            "Conv",
            [normal(2, WORDS, 5), normal(WORDS, 1, 3), normal(WORDS)],
            {"group": WORDS},
        ),
        "S(1) S(0) S(0) -> S(1)",
    ),
    "inputs of several groups": (
        Case("Conv", [normal(1, 2 * WORDS, 4), normal(4, WORDS, 3)], {"group": 2}),
        "R S(1) -> P(sum)",
    ),
    "sequences of their own lengths": (
        Case(
            "GRU",
            [
                normal(3, WORDS, 2),
                normal(2, 12, 2),
                normal(2, 12, 4),
                None,
                np.arange(WORDS, dtype=np.int32) % 3 + 1,
            ],
            {"hidden_size": 4, "direction": "bidirectional"},
            results=(True, True),
        ),
        "S(1) R R R S(0) -> S(2) S(1)",
    ),
    "in one row": (
        Case("Reshape", [normal(2, 3, WORDS), np.array([6, WORDS])], literals=frozenset({1})),
        "S(2) R -> S(1)",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ranks", RANKS)
def test_a_vocabulary_that_ranks_do_not_divide(name: str, ranks: int) -> None:
    case, wanted = CASES[name]
    assert wanted in check(case, (ranks,), opens=False).offered


OLD = {
    "embedding": (9, *CASES["embedding"]),
    "scores": (9, *CASES["scores"]),
    "gradient of what is scored": (9, *CASES["gradient of what is scored"]),
    "product and bias": (
        9,
        Case("Gemm", [normal(ROWS, WIDTH), TABLE, normal(WORDS)], {"transB": 1}),
        "R S(0) S(0) -> S(1)",
    ),
    "logarithms": (9, *CASES["logarithms"]),
    "probabilities": (11, *CASES["probabilities"]),
    "of the labels": (11, *CASES["of the labels"]),
    "best": (12, *CASES["best"]),
    "mean": (12, Case("ReduceMean", [SCORES], {"axes": [1]}), "S(1) -> P(sum)"),
    "largest": (9, Case("ReduceMax", [SCORES], {"axes": [1]}), "S(1) -> P(max)"),
    "in one row": (9, *CASES["in one row"]),
    "positive": (9, Case("Relu", [SCORES]), "S(1) -> S(1)"),
}


@pytest.mark.parametrize("name", OLD)
def test_models_of_before_opset_13_are_padded_too(name: str) -> None:
    version, case, wanted = OLD[name]
    assert wanted in check(replace(case, version=version), (4,), opens=False).offered


def test_axes_pad_a_dimension_together() -> None:
    offered = check(CASES["logarithms"][0], (2, 2)).offered
    assert {"S(1),R -> S(1),R", "R,S(1) -> R,S(1)", "S(1),S(1) -> S(1),S(1)"} <= offered


@pytest.mark.parametrize(("size", "ranks"), [(6, 4), (12, 5), (5, 2), (3, 4), (12, 8)])
def test_a_quarter_of_all_parts_may_be_padding(size: int, ranks: int) -> None:
    """Of 6 on 4 parts are 2, and the last rank has padding alone."""
    case = Case("MatMul", [normal(size, WIDTH), normal(WIDTH, 1)])
    assert "S(0) R -> S(0)" in check(case, (ranks,)).offered


@pytest.mark.parametrize(("size", "ranks"), [(5, 4), (9, 8), (2, 3), (16, 11)])
def test_more_padding_is_not_offered(size: int, ranks: int) -> None:
    case = Case("Relu", [normal(size, 1)])
    assert check(case, (ranks,)).offered == {"R -> R"}

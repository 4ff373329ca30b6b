"""Classical machine learning: trees, support vectors, linear models, and feature preparation.

All of these work row by row: a sample is one row of the features, independent of the others.
"""

from __future__ import annotations

import math

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.factors import FactorMap, rule_of
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import count
from tensoropt.dialects.onnx import CLASSICAL

__all__: list[str] = []


def _qualify(*operators: str) -> tuple[str, ...]:
    return tuple(f"{CLASSICAL}.{operator}" for operator in operators)


@sharding_rule(*_qualify("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble"))
def trees(info: OpInfo) -> Rule | None:
    """Split the rows of the features; each row descends every tree."""
    roots = info.attribute("tree_roots") or set(info.attribute("nodes_treeids", ()))
    nodes = len(info.attribute("nodes_modes", ()))
    number = max(len(roots), 1)
    return _rows(info, number * math.log2(2 + nodes / number))


@sharding_rule(*_qualify("LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor"))
def products(info: OpInfo) -> Rule | None:
    """Split the rows of the features; each row is multiplied by all coefficients or vectors."""
    attributes = (info.attribute(name, ()) for name in ("coefficients", "support_vectors"))
    return _rows(info, 2.0 * sum(map(len, attributes)))


@sharding_rule(*_qualify("Scaler", "Normalizer", "Imputer", "FeatureVectorizer"))
def features(info: OpInfo) -> Rule | None:
    """Split the rows; along a row, features have their own parameters or are all read together."""
    return _rows(info, 2.0 * count(info.result_sizes()[1:]))


def _rows(info: OpInfo, flops_per_row: float) -> Rule | None:
    """Split the first dimension of all operands and results; decline vectors, which are one row."""
    if any(len(info.shape(index)) < 2 for index in range(len(info.operands))):
        return None
    operands = dict.fromkeys(range(len(info.operands)), 0)
    present = [index for index, result in enumerate(info.results) if result is not None]
    factor = FactorMap(operands, dict.fromkeys(present, 0))
    return rule_of(info, [factor], flops_per_point=flops_per_row)


@sharding_rule(*_qualify("Binarizer", "LabelEncoder", "CategoryMapper", "OneHotEncoder"))
def elements(info: OpInfo) -> Rule | None:
    """Split every dimension of the operand; an element becomes an element or a row of marks.

    Padding is not allowed, because these operators do not accept NaN.
    """
    dims = range(len(info.shape(0)))
    factors = [FactorMap({0: dim}, {0: dim}, padded=False) for dim in dims]
    return rule_of(info, factors, flops_per_point=1.0)


@sharding_rule(*_qualify("ArrayFeatureExtractor"))
def columns(info: OpInfo) -> Rule | None:
    """Split all dimensions except the last, from which the second operand selects elements."""
    rank = len(info.shape(0))
    return rule_of(info, [FactorMap({0: dim}, {0: dim}) for dim in range(rank - 1)])

"""Fit of factors over the roofline on a grid of sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensoropt.compiler.calibrate.tables.rows import Floats
from tensoropt.compiler.cost.size_table import SizeTable

__all__ = ["factors_of", "fit_axes", "fit_grid"]

_SMOOTHING = 0.3  # samples that pull the logarithm of a factor towards 0
_AT_ONCE = 4096  # rows with weights in memory


def fit_grid(sizes: Floats, ratios: Floats, knots: Sequence[Sequence[float]]) -> SizeTable:
    """Return the table of least squares in the logarithms of ``ratios``, measured over roofline.

    ``sizes`` has a column per axis. Linear in the rows, cubic in the points of the grid.
    """
    points = math.prod(map(len, knots))
    matrix, right = _SMOOTHING * np.eye(points), np.zeros(points)
    for start in range(0, len(ratios), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        weights = _weights(sizes[part], knots)
        matrix += weights.T @ weights
        right += weights.T @ np.log(ratios[part])
    return _table(np.exp(np.linalg.solve(matrix, right)), knots)


def fit_axes(sizes: Floats, ratios: Floats, knots: Sequence[Sequence[float]]) -> SizeTable:
    """Return a table as `fit_grid` does, from few rows: a product of one factor per axis.

    Points of the grid without rows around them have the factors of their row and column.
    """
    parts = [_weights(sizes[:, [axis]], [places]) for axis, places in enumerate(knots)]
    weights = np.concatenate(parts, axis=1)
    # Of equal sums, such as a factor that all knots of two axes could have, the smallest.
    logs = np.linalg.lstsq(weights, np.log(ratios), rcond=None)[0]
    ends = np.cumsum([len(places) for places in knots])
    total = np.zeros(())
    for logs_of_axis in np.split(logs, ends[:-1]):
        total = np.add.outer(total, logs_of_axis)
    return _table(np.exp(total).reshape(-1), knots)


def _table(factors: Floats, knots: Sequence[Sequence[float]]) -> SizeTable:
    rounded = [float(f"{factor:.3g}") for factor in factors]
    return SizeTable(tuple(tuple(map(float, own)) for own in knots), tuple(rounded))


def factors_of(table: SizeTable, sizes: Floats) -> Floats:
    """Return the factor of each row, as ``table.factor`` does for one."""
    logs = np.log(np.array(table.factors))
    parts = [
        _weights(sizes[start : start + _AT_ONCE], table.knots) @ logs
        for start in range(0, len(sizes), _AT_ONCE)
    ]
    found: Floats = np.exp(np.concatenate(parts))
    return found


def _weights(sizes: Floats, knots: Sequence[Sequence[float]]) -> Floats:
    """Return the weight of each point of the grid in each row."""
    whole = np.ones((len(sizes), 1))
    for column, own in zip(sizes.T, knots, strict=True):
        places = np.log(np.array(own))
        at = np.clip(np.log(column), places[0], places[-1])
        right = np.clip(np.searchsorted(places, at, side="right"), 1, max(len(own) - 1, 1))
        axis, rows = np.zeros((len(sizes), len(own))), np.arange(len(sizes))
        if len(own) == 1:
            axis[:] = 1.0
        else:
            share = (at - places[right - 1]) / (places[right] - places[right - 1])
            axis[rows, right - 1], axis[rows, right] = 1.0 - share, share
        whole = (whole[:, :, None] * axis[:, None, :]).reshape(len(sizes), -1)
    return whole

"""Expected error of predictions from a device description, on plans outside its fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from tensoropt.compiler.cost.fields import Table
from tensoropt.runtime.support.files import sha256_of

__all__ = [
    "LEAST_PLANS",
    "ExpectedError",
    "FigureError",
    "MeasuredModel",
    "PlanError",
    "read_expected_error",
    "read_figure",
    "read_measured_models",
    "worse",
]

LEAST_PLANS = 5
"""Minimum number of held-out plans from which an error is reported."""


@dataclass(frozen=True)
class FigureError:
    """Mean and 90th percentile of ``|predicted / measured - 1|`` over ``samples`` plans.

    Both are ``None`` if there are too few plans.
    """

    mean: float | None
    p90: float | None
    samples: int

    @property
    def text(self) -> str:
        """The error in words; ``unknown`` if there are too few samples."""
        if self.mean is None or self.p90 is None:
            return f"unknown ({self.samples} samples)"
        return f"{self.mean:.0%}, nine in ten below {self.p90:.0%} ({self.samples:,} samples)"


@dataclass(frozen=True)
class MeasuredModel:
    """A model with measured plans: file name, hash, and whether training steps were measured."""

    name: str
    sha256: str
    training: bool = False


@dataclass(frozen=True)
class ExpectedError:
    """Expected error by figure, ``None`` if it was not measured.

    ``time`` is for other plans of measured models, ``other_models`` for the time of plans of other
    models, and ``memory`` for any plan. ``products`` and ``collectives`` are for single operators,
    of rows that the fit of measured tables left out.
    """

    time: FigureError | None = None
    other_models: FigureError | None = None
    memory: FigureError | None = None
    products: FigureError | None = None
    collectives: FigureError | None = None

    def of_plan(self, *, known: bool) -> PlanError:
        """Return the expected error of a plan; ``known`` means that its model was measured."""
        time = self.time if known else self.other_models
        return PlanError(time, self.memory, known, self.products, self.collectives)


@dataclass(frozen=True)
class PlanError:
    """Expected errors of a plan's predicted time and memory, ``None`` if unknown.

    ``model_measured`` is set if they come from other plans of its model. ``products`` and
    ``collectives`` are the errors of its parts, from measured tables.
    """

    time: FigureError | None
    memory: FigureError | None
    model_measured: bool
    products: FigureError | None = None
    collectives: FigureError | None = None


def is_known(models: Sequence[MeasuredModel], path: Path | None, *, training: bool) -> bool:
    """Return whether a model file is among ``models``: first by its name, then by its hash."""
    if path is None:
        return False
    named = [model for model in models if model.name == path.name and model.training == training]
    return bool(named) and sha256_of(path) in {model.sha256 for model in named}


def worse(one: ExpectedError | None, other: ExpectedError | None) -> ExpectedError | None:
    """Return the larger of two errors by figure.

    No measured plan used both descriptions together.
    """
    if one is None or other is None:
        return one or other
    figures = (_larger(getattr(one, own.name), getattr(other, own.name)) for own in fields(one))
    return ExpectedError(*figures)


def _larger(one: FigureError | None, other: FigureError | None) -> FigureError | None:
    known = [figure for figure in (one, other) if figure is not None]
    return max(known, key=lambda figure: figure.mean or 0.0, default=None)


def read_expected_error(table: Table) -> ExpectedError | None:
    """Return the tables ``[expected_error.FIGURE]``, ``None`` if there are none."""
    if not table.names():
        return None
    figures = [read_figure(table.optional(own.name)) for own in fields(ExpectedError)]
    table.reject_unread()
    return ExpectedError(*figures)


def read_figure(table: Table) -> FigureError | None:
    """Return the error of one figure, ``None`` if the table is empty."""
    if not table.names():
        return None
    found = FigureError(table.maybe("mean"), table.maybe("p90"), table.count("samples"))
    table.reject_unread()
    return found


def read_measured_models(tables: Sequence[Table]) -> tuple[MeasuredModel, ...]:
    """Return the tables ``[[measured_model]]``."""
    found = []
    for table in tables:
        name, sha256 = table.text("name"), table.text("sha256")
        found.append(MeasuredModel(name, sha256, table.flag("training")))
        table.reject_unread()
    return tuple(found)

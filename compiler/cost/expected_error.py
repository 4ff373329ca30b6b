"""Expected error of predictions from a device description, on plans outside its fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    models, and ``memory`` for any plan. ``parts`` are for single operators, by part of a step
    (``products``, ``attention``, ``experts``, ``collectives``), of rows that the fit of measured
    tables left out.
    """

    time: FigureError | None = None
    other_models: FigureError | None = None
    memory: FigureError | None = None
    parts: Mapping[str, FigureError] = field(default_factory=dict, hash=False)

    def of_plan(self, *, known: bool) -> PlanError:
        """Return the expected error of a plan; ``known`` means that its model was measured."""
        time = self.time if known else self.other_models
        return PlanError(time, self.memory, known, self.parts)


@dataclass(frozen=True)
class PlanError:
    """Expected errors of a plan's predicted time and memory, ``None`` if unknown.

    ``model_measured`` is set if they come from other plans of its model. ``parts`` are the errors
    of the parts of a step, from measured tables.
    """

    time: FigureError | None
    memory: FigureError | None
    model_measured: bool
    parts: Mapping[str, FigureError] = field(default_factory=dict, hash=False)


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
    names = dict.fromkeys((*one.parts, *other.parts))
    parts = {name: _larger(one.parts.get(name), other.parts.get(name)) for name in names}
    return ExpectedError(
        time=_larger(one.time, other.time),
        other_models=_larger(one.other_models, other.other_models),
        memory=_larger(one.memory, other.memory),
        parts={name: own for name, own in parts.items() if own is not None},
    )


def _larger(one: FigureError | None, other: FigureError | None) -> FigureError | None:
    known = [figure for figure in (one, other) if figure is not None]
    return max(known, key=lambda figure: figure.mean or 0.0, default=None)


def read_expected_error(table: Table) -> ExpectedError | None:
    """Return the tables ``[expected_error.FIGURE]``, ``None`` if there are none."""
    if not table.names():
        return None
    own = table.optional("parts")
    parts = {name: read_figure(own.table(name)) for name in own.names()}
    found = ExpectedError(
        time=read_figure(table.optional("time")),
        other_models=read_figure(table.optional("other_models")),
        memory=read_figure(table.optional("memory")),
        parts={name: part for name, part in parts.items() if part is not None},
    )
    table.reject_unread()
    return found


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

"""How far predictions from a description have been off, on plans that it was not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
"""Plans that were held out, from which on an error is stated."""


@dataclass(frozen=True)
class FigureError:
    """Of ``samples`` plans ``|predicted / measured - 1|``: the mean, and what nine in ten stay
    below; ``None`` both where there are too few."""

    mean: float | None
    p90: float | None
    samples: int


@dataclass(frozen=True)
class MeasuredModel:
    """A model whose plans were measured: the name of its file, its hash, and whether its steps of
    training were."""

    name: str
    sha256: str
    training: bool = False


@dataclass(frozen=True)
class ExpectedError:
    """By figure: the ``time`` of other plans of models that were measured, the time of plans of
    ``other_models``, and the ``memory`` of any plan; ``None`` what nobody measured."""

    time: FigureError | None = None
    other_models: FigureError | None = None
    memory: FigureError | None = None

    def of_plan(self, *, known: bool) -> PlanError:
        """Return what to expect of a plan of a model, one that was measured if it is ``known``."""
        return PlanError(self.time if known else self.other_models, self.memory, known)


@dataclass(frozen=True)
class PlanError:
    """How far off a plan's predicted time and memory are to be expected, ``None`` where that is not
    known; ``model_measured`` if that is of other plans of its model."""

    time: FigureError | None
    memory: FigureError | None
    model_measured: bool


def is_known(models: Sequence[MeasuredModel], path: Path | None, *, training: bool) -> bool:
    """Say whether a model file is among ``models``: by its name, then by its hash."""
    alike = [own for own in models if path is not None and own.name == path.name]
    wanted = {own.sha256 for own in alike if own.training == training}
    return bool(wanted) and path is not None and sha256_of(path) in wanted


def worse(one: ExpectedError | None, other: ExpectedError | None) -> ExpectedError | None:
    """Return by figure the larger of two errors: nobody has held both descriptions together
    against plans."""
    if one is None or other is None:
        return one or other
    names = ("time", "other_models", "memory")
    return ExpectedError(*(_larger(getattr(one, name), getattr(other, name)) for name in names))


def _larger(one: FigureError | None, other: FigureError | None) -> FigureError | None:
    known = [figure for figure in (one, other) if figure is not None]
    return max(known, key=lambda figure: figure.mean or 0.0, default=None)


def read_expected_error(table: Table) -> ExpectedError | None:
    """Return the tables ``[expected_error.FIGURE]``, ``None`` if there are none."""
    if not table.names():
        return None
    time, other_models, memory = (
        read_figure(table.optional(name)) for name in ("time", "other_models", "memory")
    )
    table.reject_unread()
    return ExpectedError(time, other_models, memory)


def read_figure(table: Table) -> FigureError | None:
    """Return how far one figure was off, ``None`` if the table is empty."""
    if not table.names():
        return None
    found = FigureError(table.maybe("mean"), table.maybe("p90"), table.count("samples"))
    table.reject_unread()
    return found


def read_measured_models(tables: Sequence[Table]) -> tuple[MeasuredModel, ...]:
    """Return the tables ``[[measured_model]]``."""
    return tuple(map(_model, tables))


def _model(table: Table) -> MeasuredModel:
    found = MeasuredModel(table.text("name"), table.text("sha256"), table.flag("training"))
    table.reject_unread()
    return found

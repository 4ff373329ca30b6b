"""Plans as models that are ready to answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.session import Session
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.model import Model, ServingOptions, specs_of

__all__ = ["opened"]


def opened(
    plans: Mapping[str, Path],
    session_options: Mapping[str, Any],
    options: ServingOptions,
    metrics: Metrics,
) -> dict[str, Model]:
    """Return a model for each plan folder, whose ranks have been started.

    ``session_options`` are those of `Session`. Raises `UserError`; then no ranks are left.
    """
    models: dict[str, Model] = {}
    sessions: list[Session] = []
    try:
        for name, folder in plans.items():
            models[name] = _opened(name, folder, session_options, options, metrics, sessions)
    except BaseException:
        for session in sessions:
            session.close()
        raise
    return models


def _opened(
    name: str,
    folder: Path,
    session_options: Mapping[str, Any],
    options: ServingOptions,
    metrics: Metrics,
    sessions: list[Session],
) -> Model:
    plan = Plan.load(folder)
    dims = session_options["dims"]
    inputs, outputs = specs_of(plan.inputs, dims), specs_of(plan.outputs, dims)
    sessions.append(Session(folder, **session_options))
    return Model(name, inputs, outputs, sessions[-1], options, metrics)

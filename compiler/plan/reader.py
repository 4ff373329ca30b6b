"""Reads a plan.json back, to take its strategies for another compilation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tensoropt.compiler.errors import UserError
from tensoropt.compiler.plan.writer import PLAN_FILE, check_document

__all__ = ["read_pins"]

_WHOLE = "R"


def read_pins(path: Path) -> dict[str, Any]:
    """Return the document of a plan.json; its strategies, layouts and mesh may have been edited.

    ``path`` may also be the folder of the plan. Of a plan for training, ``parameters`` and
    ``outputs`` hold all else that a step is given and gives back. Raises :class:`UserError` where
    it cannot be read or does not follow the schema.
    """
    if path.is_dir():
        path = path / PLAN_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--strategies {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"--strategies {path}: expected JSON, got: {error}") from None
    check_document(document, path)
    return _of_step(document) if "training" in document else dict(document)


def _of_step(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with all arguments and results of the step, in their order."""
    training, whole = document["training"], [_WHOLE] * len(document["mesh"]["shape"])
    given = [{"name": row["name"], "layout": whole} for row in training["hyper"]]
    sums = [{**row, "name": row["accumulator"]} for row in training["gradients"]]
    given += [*training["state"], *(row for row in sums if row["name"] is not None)]
    return {
        **document,
        "parameters": [*document["parameters"], *given],
        "outputs": [*document["outputs"], *training["state"]],
    }

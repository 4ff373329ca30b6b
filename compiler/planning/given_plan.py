"""Reader of a plan.json, to use its strategies in another compilation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.plan.document import read_json, schema_error
from tensoropt.runtime.support.errors import cause_of

__all__ = ["PLAN_FILE", "read_given_plan"]

PLAN_FILE = "plan.json"

_WHOLE = "R"


def read_given_plan(path: Path) -> dict[str, Any]:
    """Return the document of a plan.json; its strategies, layouts and mesh may have been edited.

    ``path`` may also be the folder of the plan. For a training plan, ``parameters`` and ``outputs``
    also have the other arguments and results of a step. Raises :class:`UserError` if the file
    cannot be read or does not follow the schema. Repeated names, layouts of other meshes, stages
    and replicas are errors too.
    """
    if path.is_dir():
        path = path / PLAN_FILE
    try:
        document = read_json(path)
    except OSError as error:
        raise UserError(f"--strategies {path}: {cause_of(error)}") from None
    except ValueError as error:
        raise UserError(f"--strategies {path}: expected JSON, got: {error}") from None
    mistaken = schema_error(document)
    if mistaken is not None:
        raise UserError(f"{path}: {mistaken}")
    for parts in ("stages", "replicas"):
        if parts in document:
            raise UserError(
                f"--strategies {path}: has {parts}, expected a plan on one mesh, or the IR of "
                "--emit search, which can be edited too"
            )
    pins = _of_step(document) if "training" in document else dict(document)
    mistake = next(_mistakes(pins), None)
    if mistake is not None:
        raise UserError(f"--strategies {path}: {mistake}")
    return pins


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


def _mistakes(pins: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mistakes in names and layouts that are used; linear in their number."""
    shape = pins["mesh"]["shape"]
    yield from _doubles("node", (row["node"] for row in pins["strategies"]))
    given = [*pins["inputs"], *pins["parameters"]]
    yield from _doubles("input or parameter", (row["name"] for row in given))
    for row in [*given, *pins["outputs"]]:
        yield from _misfits(f"'{row['name']}'", row["layout"], shape)
    for row in pins["strategies"]:
        for side in ("operand", "result"):
            for number, layout in enumerate(row[f"{side}s"]):
                if layout:  # an omitted tensor has none
                    yield from _misfits(f"node '{row['node']}': {side} {number}", layout, shape)


def _doubles(what: str, names: Iterator[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} '{name}' is there {count} times, expected one entry"


def _misfits(where: str, layout: Sequence[str], shape: Sequence[int]) -> Iterator[str]:
    if len(layout) != len(shape):
        mesh = "x".join(map(str, shape))
        yield (
            f"{where}: expected a placement for each axis of mesh {mesh}, "
            f"got: [{', '.join(layout)}]"
        )

"""Comparison of a plan with its model on one device, from Python."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from tensoropt.runtime.api.arguments import arrays_folder, file_of
from tensoropt.runtime.check.results import CheckResult
from tensoropt.runtime.inference.jobs import check_plan
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.job import CheckArguments, Job
from tensoropt.runtime.support.options import shows_options

__all__ = ["check"]


@shows_options(Job, CheckArguments)
def check(
    plan: str | PathLike[str], model: str | PathLike[str], **options: Unpack[CheckArguments]
) -> CheckResult:
    """Run a plan or plan folder, run ``model`` on one device, and compare every output.

    Each option is the flag of `tensoropt-run` of that name. ``inputs`` are arrays by name, or an
    .npz file; by default they are drawn from ``seed``. The result has the verdict ``passed``, and
    the differences of each of its ``outputs``. Raises :class:`UserError` if the plan cannot be run.
    """
    given: dict[str, Any] = dict(options)
    with arrays_folder() as folder:
        if given.get("inputs") is not None:
            given["inputs"] = file_of(given["inputs"], folder, "inputs", plan)
        result = check_plan(Path(plan), Path(model), **given)
    if result.error is not None:
        raise UserError(f"{result.plan}: {result.error}")
    return result

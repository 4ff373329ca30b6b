"""Running a plan beside its model on one device, from Python."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from tensoropt.runtime.inference.jobs import check_plan
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.job import CheckResult

__all__ = ["check"]


def check(plan: str | PathLike[str], model: str | PathLike[str], **options: Any) -> CheckResult:
    """Run a plan, or the one in a folder, and ``model`` on one device, and compare every output.

    ``options`` are fields of :class:`Job`: inputs (an .npz file), seed, int_range, dims, runs,
    rtol, atol, threads, provider, share_gpus, cuda_graphs, timeout_s, stall_s, custom_ops.
    The result says of each output how far it is off. Raises :class:`UserError` where the plan
    cannot be run.
    """
    result = check_plan(Path(plan), Path(model), **options)
    if result.error is not None:
        raise UserError(f"{result.plan}: {result.error}")
    return result

"""Comparison of a plan with its model on one device, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, Unpack

from numpy.typing import ArrayLike

from tensoropt.runtime.api.arguments import arrays_folder, check_given, file_of
from tensoropt.runtime.check.results import CheckResult
from tensoropt.runtime.inference.jobs import check_plan
from tensoropt.runtime.plan.dims import parse_dims
from tensoropt.runtime.support.errors import UserError

__all__ = ["CheckOptions", "check"]


class CheckOptions(TypedDict, total=False):
    """Options of a comparison; each is the flag of `tensoropt-run` of that name.

    ``inputs`` are arrays by name, or an .npz file of them. By default they are drawn from ``seed``.
    """

    inputs: str | Path | Mapping[str, ArrayLike]
    seed: int
    int_range: tuple[int, int]
    dims: Mapping[str, int]
    runs: int
    rtol: float
    atol: float
    threads: int
    provider: str
    share_gpus: bool
    cuda_graphs: bool
    timeout_s: float
    stall_s: float
    custom_ops: Sequence[str | Path]


def check(
    plan: str | PathLike[str], model: str | PathLike[str], **options: Unpack[CheckOptions]
) -> CheckResult:
    """Run a plan or plan folder, run ``model`` on one device, and compare every output.

    ``options`` are inputs (arrays by name, or an .npz file), seed, int_range, dims, runs, rtol,
    atol, threads, provider, share_gpus, cuda_graphs, timeout_s, stall_s and custom_ops, each the
    flag of `tensoropt-run` of that name. The result has the verdict ``passed``, and the differences
    of each of its ``outputs``. Raises :class:`UserError` if the plan cannot be run.
    """
    given: dict[str, Any] = dict(options)
    check_given(given)
    with arrays_folder() as folder:
        if "inputs" in given:
            given["inputs"] = file_of(given["inputs"], folder, "inputs")
        if "dims" in given:
            given["dims"] = parse_dims([f"{name}={size}" for name, size in given["dims"].items()])
        if "custom_ops" in given:
            given["custom_ops"] = tuple(str(Path(path).resolve()) for path in given["custom_ops"])
        result = check_plan(Path(plan), Path(model), **given)
    if result.error is not None:
        raise UserError(f"{result.plan}: {result.error}")
    return result

"""Plans of real models, in layouts that differ much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import zoo

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.search.frontier.points import fastest, leanest
from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult

__all__ = ["compiled"]


def compiled(path: Path, devices: int, randoms: int, folder: Path) -> list[Path]:
    """Write plans of a model below ``folder``; return their directories.

    The fastest, the leanest, the one that splits the batch alone, and ``randoms`` drawn ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    directories = []
    for name, *chosen in _chosen(path, devices, randoms):
        directories.append(folder / name)
        module = _prepared(path)
        driver.settle(module, *chosen)
        driver.compile_plan(module, path, directories[-1])
    return directories


def _chosen(
    path: Path, devices: int, randoms: int
) -> Iterator[tuple[str, FrontierPoint, Request, FrontierResult]]:
    request = Request(devices, epsilon=1.0)
    module = _prepared(path)
    result = driver.frontier(module, request)
    yield "fastest", fastest(result.points), request, result
    if len(result.points) > 1:
        yield "leanest", leanest(result.points), request, result
    searches = [("data-parallel", None), *(("random", seed) for seed in range(randoms))]
    for search, seed in searches:
        own = replace(request, search=search, seed=seed)
        found = driver.frontier(module, own)
        name = search if seed is None else f"random-{seed}"
        yield name, found.points[0], own, found


def _prepared(path: Path) -> driver.ir.Module:
    module = driver.load(path, zoo.DIMS.get(path.stem, {}))
    driver.advance(module, "rules")
    return module

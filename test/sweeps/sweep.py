"""Compile every model for many plans, run each on ranks, and compare with the one-device run.

Per model and number of devices: the fastest, the leanest and the knee plan, and random ones. Also
holds the predicted memory against what the emitted graphs imply, and feeds each plan back in by its
strategies, which must give the same plan. Models are those of ``zoo.py``, and ``.onnx`` files.
Prints a table and ends in ``N passed, M failed``; exit status 1 if any plan failed.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import zoo
from emitted_memory import emitted_memory
from fed_back import changed_entries

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.search.frontier.points import fastest, knee, leanest
from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.inference.jobs import check_plans

__all__ = ["Row", "sweep_model"]


@dataclass
class Row:
    """What happened to one model on one number of devices; ``blind`` plans show nothing."""

    model: str
    devices: int
    points: int = 0
    plans: int = 0
    passed: int = 0
    returned: int = 0
    blind: int = 0
    worst: float = 0.0
    memory_error: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


# A launch costs as much as two or three plans of a small model, so many run in one; those of a
# large model would fill the disk.
_BATCH, _BATCH_BYTES = 25, 4 << 30


def sweep_model(path: Path, devices: int, plans: int, seed: int = 0, epsilon: float = 0.0) -> Row:
    """Compile, run and check the plans of one model, in few launches.

    ``plans`` are random ones, beside up to three of the frontier within ``epsilon``.
    """
    row = Row(path.stem, devices)
    started, busy = time.perf_counter(), _cpu_seconds()
    chosen = list(_choices(path, devices, plans, seed, epsilon, row))
    size = sum(held.stat().st_size for held in path.parent.glob(f"{path.stem}.*"))
    batch = max(1, min(_BATCH, _BATCH_BYTES // (size * devices)))
    for first in range(0, len(chosen), batch):
        with tempfile.TemporaryDirectory(prefix="tensoropt-sweep-") as folder:
            _run(path, Path(folder), chosen[first : first + batch], row)
    row.seconds, row.cpu_seconds = time.perf_counter() - started, _cpu_seconds() - busy
    return row


def _cpu_seconds() -> float:
    """Return the processor time of this process and its children, which other work leaves alone."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(held.ru_utime + held.ru_stime for held in used)


def _choices(
    path: Path, devices: int, plans: int, seed: int, epsilon: float, row: Row
) -> Iterator[tuple[str, Request, FrontierResult, FrontierPoint]]:
    module = _prepared(path)
    request = Request(devices, epsilon=epsilon)
    result = driver.frontier(module, request)
    row.points = len(result.points)
    named = (("knee", knee), ("leanest", leanest), ("fastest", fastest))
    ends = {id(point): (name, point) for name, pick in named for point in [pick(result.points)]}
    for name, point in ends.values():  # often the knee is one of the other two
        yield name, request, result, point
    for number in range(seed, seed + plans):
        own = replace(request, search="random", seed=number)
        drawn = driver.frontier(module, own)
        yield f"random {number}", own, drawn, drawn.points[0]


def _prepared(path: Path) -> driver.ir.Module:
    module = driver.load(path, zoo.DIMS.get(path.stem, {}))
    driver.advance(module, "rules")
    return module


def _run(
    path: Path,
    folder: Path,
    chosen: list[tuple[str, Request, FrontierResult, FrontierPoint]],
    row: Row,
) -> None:
    directories = []
    for name, request, result, point in chosen:
        directory = folder / name.replace(" ", "-")
        module = _prepared(path)
        driver.settle(module, point, request, result)
        driver.compile_plan(module, path, directory)
        directories.append(directory)
        _compare_memory(directory, name, point, row)
        _feed_back(path, directory, name, request, row)
    results = check_plans(directories, path, int_range=(0, 200))
    for held in results:
        row.plans += 1
        row.passed += bool(held.passed)
        row.blind += not held.shows
        row.worst = max([row.worst, *(o.absolute or 0.0 for o in held.outputs)])
        if not held.passed:
            row.failures.append(f"{row.model} on {row.devices}: {held}")


def _compare_memory(directory: Path, name: str, point: FrontierPoint, row: Row) -> None:
    """Hold the plan's memory, and for points of the frontier the table's, against the graphs."""
    plan = json.loads((directory / "plan.json").read_text(encoding="utf-8"))
    caches = plan.get("caches", ())
    pasts = {cache["past"] for cache in caches}
    in_place = {cache["present"] for cache in caches if cache["in_place"]}
    graphs = sorted(directory.glob("rank*.onnx"))
    implied = max(emitted_memory(path, pasts, in_place).memory_bytes for path in graphs)
    claims = [plan["predicted"]["memory_bytes"]]
    if not name.startswith("random"):
        claims.append(point.memory_bytes)
    errors = [abs(claim - implied) / implied for claim in claims]
    row.memory_error = max(row.memory_error, *errors)


def _feed_back(path: Path, directory: Path, name: str, request: Request, row: Row) -> None:
    """Compile a plan from its own plan.json: nothing may change."""
    try:
        changed = changed_entries(path, _prepared(path), directory, request)
    except UserError as error:
        row.failures.append(f"{row.model} on {row.devices}: {name}: fed back: {error}")
        return
    if changed:
        row.failures.append(f"{row.model} on {row.devices}: {name}: fed back: other {changed}")
    else:
        row.returned += 1


def main() -> int:
    arguments = _parser().parse_args()
    names = arguments.models or zoo.NAMES
    folder = Path(tempfile.mkdtemp(prefix="tensoropt-zoo-"))
    rows = []
    print(
        f"{'model':20} {'devices':>7} {'points':>6} {'passed':>8} {'fed back':>8} "
        f"{'max diff':>9} "
        f"{'memory':>7} {'seconds':>8} {'cpu':>8}"
    )
    try:
        for name in names:
            path = zoo.provide(name, folder)
            for devices in arguments.devices:
                rows.append(sweep_model(path, devices, arguments.random))
                _print(rows[-1])
            for held in folder.glob(f"{path.stem}.*"):
                held.unlink()
    finally:
        shutil.rmtree(folder)
    return _summary(rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="names from bench/zoo.py, or files; default all")
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--random", type=int, default=20, help="random plans per model and count")
    return parser


def _print(row: Row) -> None:
    print(
        f"{row.model:20} {row.devices:7} {row.points:6} {row.passed:4}/{row.plans:<3} "
        f"{row.returned:8} {row.worst:9.1e} {row.memory_error:7.2%} {row.seconds:8.1f} "
        f"{row.cpu_seconds:8.1f}",
        flush=True,
    )
    for failure in row.failures:
        print(f"  FAILED {failure}", flush=True)


def _summary(rows: list[Row]) -> int:
    passed = sum(row.passed for row in rows)
    failed = sum(2 * row.plans - row.passed - row.returned for row in rows)
    blind = sum(row.blind for row in rows)
    print(f"{passed} passed, {failed} failed" + (f", {blind} show nothing" if blind else ""))
    return 1 if failed or blind else 0


if __name__ == "__main__":
    sys.exit(main())

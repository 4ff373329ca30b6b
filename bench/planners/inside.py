"""One of Sailor's planners and its simulator, in a process of their own.

    python inside.py request.json answer.json

Runs with the Python that has the planners' packages and imports nothing of tensoropt. The request
names a `planner`, or has `plans` to judge. The answer has the time that the planner took and the
first of its plans that fits by the simulator; or the step that failed, and its cause: no `profile`,
`load`, `search`, `judge`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contestants import PLANNERS, Task
from judge import Judge, Plan, judge_of


class _StepError(Exception):
    pass


@contextlib.contextmanager
def _step(name: str) -> Iterator[None]:
    """Name the step in which an error of foreign code happens, and its cause in one line."""
    try:
        yield
    except Exception as error:
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise _StepError(name, cause) from error


def _load(name: str, task: Task) -> Any:
    """Return a planner with its profile, which is readable if it is a file."""
    own = PLANNERS[name]
    profile = own.profile(task)
    if not profile.exists():
        raise _StepError("profile", f"no profiles of {task.model} on {task.first}")
    with _step("load"):
        if profile.is_file():
            json.loads(profile.read_text("utf-8"))
        module = importlib.import_module(f"sailor.Planner.{own.module}")
        return getattr(module, own.name)(*own.arguments(task, str(profile)))


def _first_fit(judge: Judge, plans: Sequence[Plan]) -> dict[str, Any]:
    """Return the first plan that fits and can be judged, and why others before it cannot be."""
    objections: list[str] = []
    for number, plan in enumerate(map(judge.prepared, plans)):
        if objection := judge.objection(plan):
            objections.append(objection)
        elif judge.fits(plan):
            return {
                "number": number + 1,
                "plans": len(plans),
                "objections": objections,
                "summary": judge.summary(plan),
                "time_s": judge.time_s(plan),
                "memory_bytes": judge.memory_bytes(plan),
            }
    return {"number": 0, "plans": len(plans), "objections": objections}


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    name, folder = request["planner"], Path(request["planning"])
    with _step("load"):
        task = Task(folder, request["training"], request["gpus"], Path(request["quotas"]))
        judge = judge_of(name, task)
    plans = request.get("plans")
    planner = None if plans else _load(name, task)
    with _step("search"):
        begun_s = time.perf_counter()
        if planner is not None:
            cluster = PLANNERS[name].cluster(task)
            plans = planner.get_sorted_plans(cluster_config=cluster, training_config=task.training)
        search_s = time.perf_counter() - begun_s
    with _step("judge"):
        return {"search_s": search_s, **_first_fit(judge, plans)}


def main() -> None:
    request, answer = map(Path, sys.argv[1:3])
    try:
        found = _answer(json.loads(request.read_text("utf-8")))
    except _StepError as failure:
        step, cause = failure.args
        found = {"failure": step, "cause": cause}
    answer.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Random graphs under random plans, on simulated ranks, against ONNX Runtime on one device.

Each seed is one graph, which goes through the whole compiler under a few random plans; the graphs
of all ranks then run together and are compared. What differs is made small and kept in a folder.
Ends in ``N graphs, M plans, K operators: F findings``; exit status 1 if there are any.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.workers import Event, find_modules, run, say

__all__ = ["Report", "main", "sweep"]

_EVERY = 500  # graphs between two lines on how far it is
_FOLDER = Path("build/fuzz")


@dataclass
class Report:
    """What was tried and what was found, by seed."""

    graphs: int = 0
    plans: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    findings: dict[int, str] = field(default_factory=dict)
    given_up: int = 0  # graphs whose making ends ONNX Runtime

    def text(self) -> str:
        return (
            f"{self.graphs} graphs, {self.plans} plans, {len(self.operators)} operators: "
            f"{len(self.findings)} findings"
        )


def sweep(
    seeds: range, plans: int, jobs: int = 1, seconds: float | None = None, folder: Path = _FOLDER
) -> Report:
    """Try the graphs of ``seeds`` in ``jobs`` processes, for at most ``seconds``."""
    report = Report()

    def command(own: range) -> list[str]:
        numbers = map(str, (own.start, own.stop, own.step, plans))
        return [sys.executable, __file__, "--worker", *numbers, "--keep", str(folder)]

    run(command, seeds, jobs, seconds, lambda event: _note(report, event))
    return report


def _note(report: Report, event: Event) -> None:
    seed = event["seed"]
    if event["event"] == "done":
        report.graphs += 1
        report.plans += event["plans"]
        report.operators.update(event["operators"])
        if not report.graphs % _EVERY:
            print(report.text(), file=sys.stderr, flush=True)
    elif event["event"] == "given up":
        report.given_up += 1
    else:
        event["finding"] = f"seed {seed}: {event['how']}\n{_again(seed)}"
    if event.get("finding"):
        report.findings[seed] = event["finding"]
        print(event["finding"], flush=True)


def _again(seed: int) -> str:
    return f"  again: make fuzz-plans ARGS='--seed {seed} --count 1'"


def _work(seeds: range, plans: int, folder: Path) -> None:
    """Try ``seeds`` in this process."""
    find_modules()
    from fuzz.graphs import random_case
    from fuzz.plans import try_case

    for seed in seeds:
        say(event="generate", seed=seed)
        case = random_case(seed)
        say(event="try", seed=seed)
        found = try_case(case, plans)
        text = "" if found is None else _told(case, found, folder)
        say(event="done", seed=seed, plans=plans, operators=sorted(case.operators), finding=text)


def _told(case: Any, found: Any, folder: Path) -> str:
    """Make a failing case small, keep it in ``folder`` and return what there is to say."""
    import numpy as np
    import onnx
    from fuzz.minimise import minimise

    small, found = minimise(case, found)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case.seed}.onnx"
    onnx.save(small.model, path)
    np.savez(path.with_suffix(".npz"), **small.feeds)
    lines = [f"seed {case.seed}: {found.phase}: {found.text}"]
    if found.choice is not None:
        mesh = "x".join(map(str, found.choice.mesh))
        drawn = f"strategies drawn with {found.choice.seed}, for {Path(found.choice.device).name}"
        lines += [f"  mesh {mesh}, {drawn}", *found.plan]
    dims = f" --dim {small.dims}" if small.dims else ""
    text = onnx.printer.to_text(small.model).strip().splitlines()
    text = [f"  {line[:300]}" for line in text]
    return "\n".join([*lines, *text, f"  kept: {path}{dims}", _again(case.seed)])


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.worker:
        start, stop, step, plans = arguments.worker
        _work(range(start, stop, step), plans, arguments.keep)
        return 0
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    report = sweep(seeds, arguments.plans, arguments.jobs, arguments.seconds, arguments.keep)
    print(report.text())
    if arguments.operators:
        print(", ".join(f"{name} {n}" for name, n in sorted(report.operators.items())))
    return 1 if report.findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="graphs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="end after so long, whatever is left")
    parser.add_argument("--plans", type=int, default=3, help="per graph (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--keep", type=Path, default=_FOLDER, help="folder for what fails")
    parser.add_argument("--operators", action="store_true", help="say how often each was there")
    parser.add_argument("--worker", type=int, nargs=4, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Random graphs under random plans, on simulated ranks, against ONNX Runtime on one device.

Each seed is one graph, which goes through the whole compiler under a few random plans; the graphs
of all ranks then run together and are compared. What differs is made small and kept in a folder.
Ends in ``N graphs, M plans, K operators: F findings``; exit status 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

__all__ = ["Report", "main", "sweep"]

_SILENCE_S = 180.0  # of a worker; then it hangs
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
    report, end = Report(), None if seconds is None else time.monotonic() + seconds
    lock = threading.Lock()

    def drive(job: int) -> None:
        for event in _events(seeds[job::jobs], plans, folder, end):
            with lock:
                _note(report, event)

    threads = [threading.Thread(target=drive, args=(job,)) for job in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return report


def _note(report: Report, event: dict[str, Any]) -> None:
    if event["event"] == "done":
        report.graphs += 1
        report.plans += event["plans"]
        report.operators.update(event["operators"])
        if not report.graphs % _EVERY:
            print(report.text(), file=sys.stderr, flush=True)
    elif event["event"] == "given up":
        report.given_up += 1
    if event.get("finding"):
        report.findings[event["seed"]] = event["finding"]
        print(event["finding"], flush=True)


def _events(seeds: range, plans: int, folder: Path, end: float | None) -> Iterator[dict[str, Any]]:
    """Yield what workers say of ``seeds``; one that dies or hangs is replaced for the rest."""
    while seeds and (end is None or time.monotonic() < end):
        worker = _Worker(seeds, plans, folder)
        stage, seed = "generate", seeds[0]
        for event in worker.events(end):
            stage, seed = event["event"], event["seed"]
            if stage == "done":
                yield event
        code = worker.end()
        left = [s for s in seeds if s > seed]
        seeds = range(left[0], seeds.stop, seeds.step) if left else range(0)
        if stage == "generate":
            yield {"event": "given up", "seed": seed}
        elif stage == "try":
            how = "hangs" if code is None else f"ends the process ({code})"
            yield {"event": "crash", "seed": seed, "finding": f"seed {seed}: {how}\n{_again(seed)}"}


class _Worker:
    """A process that tries seeds and says so in lines of JSON."""

    def __init__(self, seeds: range, plans: int, folder: Path) -> None:
        numbers = [seeds.start, seeds.stop, seeds.step, plans]
        command = [sys.executable, __file__, "--worker", *map(str, numbers), "--keep", str(folder)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        self.is_late = False

    def _read(self, stream: TextIO) -> None:
        with stream:
            for line in stream:
                self.lines.put(line)
        self.lines.put(None)

    def events(self, end: float | None) -> Iterator[dict[str, Any]]:
        """Yield until the worker ends, says nothing for long, or the time is over."""
        while True:
            try:
                line = self.lines.get(timeout=_SILENCE_S)
            except queue.Empty:
                self.is_late = True
                return
            if line is None:
                return
            event = json.loads(line)
            yield event
            if event["event"] == "done" and end is not None and time.monotonic() > end:
                return

    def end(self) -> int | None:
        """End the worker; return its status, ``None`` if it was silent for long."""
        if self.is_late or self.lines.empty():
            self.process.kill()
        code = self.process.wait()
        return None if self.is_late else code


def _again(seed: int) -> str:
    return f"  again: make fuzz-plans ARGS='--seed {seed} --count 1'"


def _work(seeds: range, plans: int, folder: Path) -> None:
    """Try ``seeds`` in this process."""
    from fuzz.graphs import random_case
    from fuzz.plans import try_case

    for seed in seeds:
        _say(event="generate", seed=seed)
        case = random_case(seed)
        _say(event="try", seed=seed)
        found = try_case(case, plans)
        text = "" if found is None else _told(case, found, folder)
        _say(event="done", seed=seed, plans=plans, operators=sorted(case.operators), finding=text)


def _say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


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
        lines += [f"  mesh {mesh}, strategies drawn with {found.choice.seed}", *found.plan]
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

"""Random differentiable graphs: the gradients of their training steps beside PyTorch's autograd.

Each seed is one graph, built as ONNX and as PyTorch. The training step that is made of it runs on
ONNX Runtime, and every gradient is compared; of one in ten, the step is also taken on simulated
ranks under a random plan. What differs is made small and kept in a folder. Ends in ``N graphs, M
plans, K operators: F findings``; exit status 1 if there are any.
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

_FOLDER = Path("build/fuzz-gradients")
_ON_RANKS = 10  # one graph in so many


@dataclass
class Report:
    """What became of the graphs, by kind, and what was found, by seed."""

    kinds: Counter[str] = field(default_factory=Counter)
    plans: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    findings: dict[int, str] = field(default_factory=dict)

    def text(self) -> str:
        graphs, others = sum(self.kinds.values()), dict(sorted(self.kinds.items()))
        rest = ", ".join(f"{count} {kind}" for kind, count in others.items())
        return (
            f"{graphs} graphs ({rest}), {self.plans} plans, {len(self.operators)} operators: "
            f"{len(self.findings)} findings"
        )


def sweep(
    seeds: range,
    jobs: int = 1,
    seconds: float | None = None,
    folder: Path = _FOLDER,
    on_ranks: int = _ON_RANKS,
) -> Report:
    """Try the graphs of ``seeds`` in ``jobs`` processes, one in ``on_ranks`` under a plan too."""
    report = Report()

    def command(own: range) -> list[str]:
        numbers = map(str, (own.start, own.stop, own.step, on_ranks))
        return [sys.executable, __file__, "--worker", *numbers, "--keep", str(folder)]

    run(command, seeds, jobs, seconds, lambda event: _note(report, event))
    return report


def _note(report: Report, event: Event) -> None:
    seed, finding = event["seed"], event.get("finding")
    report.kinds[event.get("kind", event["event"])] += 1
    if event["event"] == "done":
        report.plans += event["plans"]
        report.operators.update(event["operators"])
    elif event["event"] == "crash":
        finding = f"seed {seed}: {event['how']}\n{_again(seed)}"
    if finding:
        report.findings[seed] = finding
        print(finding, flush=True)


def _again(seed: int) -> str:
    return f"  again: make fuzz-gradients ARGS='--seed {seed} --count 1 --on-ranks 1'"


def _work(seeds: range, on_ranks: int, folder: Path) -> None:
    """Try ``seeds`` in this process."""
    find_modules()
    from fuzz.gradients.drawing import random_graph
    from fuzz.gradients.ranks import can_run, try_ranks
    from fuzz.gradients.trial import FAILED, PASSED, try_graph, unfit

    for seed in seeds:
        say(event="generate", seed=seed)
        graph = random_graph(seed)
        unfit(graph)  # what ends ONNX Runtime itself does so here
        say(event="try", seed=seed)
        attempt, plans = try_graph, 0
        outcome = attempt(graph)
        if outcome.kind == PASSED and seed % on_ranks == 0 and can_run(graph):
            attempt, plans = lambda graph, seed=seed: try_ranks(graph, seed), 1
            outcome = attempt(graph)
        finding = _told(seed, graph, attempt, folder) if outcome.kind == FAILED else ""
        operators = sorted({node.op_type for node in graph.nodes})
        say(event="done", seed=seed, kind=outcome.kind, why=outcome.why[:300], plans=plans,
            operators=operators, finding=finding)  # fmt: skip


def _told(seed: int, graph: Any, attempt: Any, folder: Path) -> str:
    """Make a failing graph small, keep it in ``folder`` and return what there is to say."""
    import numpy as np
    import onnx
    from fuzz.gradients.graph import model_of
    from fuzz.gradients.minimise import minimise

    small, outcome = minimise(graph, attempt)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{seed}.onnx"
    model = model_of(small)
    onnx.save(model, path)
    np.savez(path.with_suffix(".npz"), **small.inputs)
    text = [f"  {line[:300]}" for line in onnx.printer.to_text(model).strip().splitlines()]
    first = f"seed {seed}: {outcome.why[:600]}"
    return "\n".join([first, *text, f"  kept: {path} --loss {small.loss}", _again(seed)])


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.worker:
        start, stop, step, on_ranks = arguments.worker
        _work(range(start, stop, step), on_ranks, arguments.keep)
        return 0
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    report = sweep(seeds, arguments.jobs, arguments.seconds, arguments.keep, arguments.on_ranks)
    if arguments.operators:
        print(", ".join(f"{name} {n}" for name, n in sorted(report.operators.items())))
    print(report.text())
    return 1 if report.findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="graphs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="end after so long, whatever is left")
    parser.add_argument("--on-ranks", type=int, default=_ON_RANKS,
                        help="one graph in so many, on ranks (default: %(default)s)")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--keep", type=Path, default=_FOLDER, help="folder for what fails")
    parser.add_argument("--operators", action="store_true", help="say how often each was there")
    parser.add_argument("--worker", type=int, nargs=4, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Lower bounds on the slowest stage over all cuts, next to the cuts that are made.

    python bench/stages/cut_bounds.py            print the table
    python bench/stages/cut_bounds.py --write    into docs/benchmarks.md too

Archer et al. (ICML'24, arXiv 2311.03703) cut graphs into k parts so that the slowest is fast, and
prove a lower bound: 0.945 of the best cuts on average, at k = 16. Here are training steps of the
models in `graphs` on one device each, and the cuts of `compiler/stages`.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from accuracy.gpu_plans import fastest_plan
from search_graphs import training_graph
from sections import print_section

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.chunks import cuts_of
from tensoropt.compiler.stages.cuts import cut_evenly
from tensoropt.compiler.stages.devices import StageDevices
from tensoropt.compiler.stages.order import order_of
from tensoropt.runtime.support.flags import run_command

__all__ = ["STAGES", "Shares", "least_slowest_s"]

MODELS: Mapping[str, Mapping[str, int]] = {
    "alexnet": {}, "vgg16": {}, "inception_v3": {}, "resnet152": {}, "wrn50_2": {},
    "transformer_base": {}, "transformer_big": {}, "bert_large": {}, "gpt3_13b": {"batch": 1},
    "gpt3_175b": {"batch": 1}, "llama3_8b": {"batch": 1}, "llama3_70b": {"batch": 1},
    "mixtral_8x7b": {"batch": 1},
}  # fmt: skip
STAGES = (2, 4, 8, 16)
_DEVICE = "h100"
_GOAL = 0.95
_TEXT = """\
## Certified cuts

`make bench-stages ARGS=--write`: a lower bound on the slowest of k parts of a training step
(forward and backward pass of one micro-batch on an H100), over all partitions of its operations,
divided by the slowest part of our cut. A forward operation and its gradients stay together. The
bound is the k-th part of the whole, or the least time of operations that share a part: of the
`q k + 1` longest, some part has `q + 1`. Archer et al. prove 0.945 on average at k = 16, for other
graphs and with the time of transfers. Our cutter begins a chunk where no more bytes pass than at
some operation that reads a parameter first, and each chunk has such an operation; among those cuts
its own are within 0.2% of the best. The second figure is for cuts at any operation, in program
order: pipelines with these were slower as often as faster. "-" has fewer operations with parameters
than parts.
"""


@dataclass(frozen=True)
class Shares:
    """A lower bound on the slowest part, over the slowest of our cut, and of a cut anywhere."""

    ours: float
    anywhere: float

    @classmethod
    def read(cls, plan: FrontierPoint, parts: int) -> Shares:
        """Return the shares of a step; the cutter can make that many parts."""
        devices = StageDevices.of_one_kind(plan, parts)
        place_s = devices.group_times[0].place_s[1]
        bound_s = least_slowest_s(place_s.tolist(), parts)
        anywhere = cut_evenly([place_s] * parts, [0] * len(place_s))
        slowest_s = (
            float(np.add.reduceat(place_s, [0, *cuts]).max())
            for cuts in (cuts_of(devices, range(parts)), anywhere)
        )
        return cls(*(bound_s / own_s for own_s in slowest_s))


def least_slowest_s(times_s: Sequence[float], parts: int) -> float:
    """Return a lower bound on the time of the slowest part, over all partitions into ``parts``.

    Of the ``q parts + 1`` longest operations some part has at least ``q + 1``.
    """
    longest_s = sorted(times_s, reverse=True)
    shared_s = (
        sum(longest_s[q * (parts - 1) : q * parts + 1])
        for q in range((len(longest_s) - 1) // parts + 1)
    )
    return max(sum(times_s) / parts, *shared_s)


def _shares(name: str) -> list[Shares | None]:
    graph = training_graph(name, **MODELS[name])
    plan = fastest_plan(graph, 1, load_device(_DEVICE))
    most = len(order_of(graph).first_reads)
    return [Shares.read(plan, parts) if parts <= most else None for parts in STAGES]


def table() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield f"| model | {' | '.join(f'k = {parts}' for parts in STAGES)} |"
    yield "|---|" + "---:|" * len(STAGES)
    every = {name: _shares(name) for name in MODELS}
    for name, shares in every.items():
        cells = ("-" if own is None else f"{own.ours:.3f}, {own.anywhere:.3f}" for own in shares)
        yield f"| {name} | {' | '.join(cells)} |"
    columns = [[own for own in column if own] for column in zip(*every.values(), strict=True)]
    for title, figure in (("mean", _mean), (f"at least {_GOAL}", _count)):
        pairs = (
            (figure([own.ours for own in column]), figure([own.anywhere for own in column]))
            for column in columns
        )
        yield f"| {title} | {' | '.join(', '.join(pair) for pair in pairs)} |"


def _mean(shares: Sequence[float]) -> str:
    return f"{statistics.mean(shares):.3f}"


def _count(shares: Sequence[float]) -> str:
    return f"{sum(share >= _GOAL for share in shares)} of {len(shares)}"


if __name__ == "__main__":
    sys.exit(run_command(lambda: print_section(__doc__, "stages_cuts", _TEXT, table)))

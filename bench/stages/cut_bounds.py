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
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from accuracy.gpu_plans import fastest_plan
from search_graphs import training_graph
from sections import print_section

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.stages.chunk_costs import NodeTimes
from tensoropt.compiler.stages.chunks import cuts_of
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.support.flags import run_command

__all__ = ["STAGES", "bound_share", "least_slowest_s"]

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
graphs and with the time of transfers. Our cutter begins a chunk only at an operation that reads a
parameter first; among those cuts its own are within 0.2% of the best. "-" has fewer such operations
than parts.

"""


def bound_share(times: NodeTimes, parts: int) -> float:
    """Return a lower bound on the slowest part over that of our cut.

    Raises :class:`UserError` for more parts than the cutter makes.
    """
    place_s = times.place_s[1]
    sums_s = np.add.reduceat(place_s, [0, *cuts_of(times, parts)])
    return least_slowest_s(place_s.tolist(), parts) / float(sums_s.max())


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


def _shares(name: str) -> list[float | None]:
    graph = training_graph(name, **MODELS[name])
    times = NodeTimes(fastest_plan(graph, 1, load_device(_DEVICE)))
    found: list[float | None] = []
    for parts in STAGES:
        try:
            found.append(bound_share(times, parts))
        except UserError:
            found.append(None)
    return found


def table() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield f"| model | {' | '.join(f'k = {parts}' for parts in STAGES)} |"
    yield "|---|" + "---:|" * len(STAGES)
    every = []
    for name in MODELS:
        shares = _shares(name)
        every.append(shares)
        cells = " | ".join("-" if share is None else f"{share:.3f}" for share in shares)
        yield f"| {name} | {cells} |"
    columns = [[share for share in own if share is not None] for own in zip(*every, strict=True)]
    yield "| mean | " + " | ".join(f"{statistics.mean(own):.3f}" for own in columns) + " |"
    good = (f"{sum(share >= _GOAL for share in own)} of {len(own)}" for own in columns)
    yield f"| at least {_GOAL} | " + " | ".join(good) + " |"


if __name__ == "__main__":
    sys.exit(run_command(lambda: print_section(__doc__, "stages_cuts", _TEXT, table)))

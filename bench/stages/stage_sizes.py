"""Stages of unlike sizes: how much faster a step could be with them, before they are built.

    python bench/stages/stage_sizes.py            print the table
    python bench/stages/stage_sizes.py --write    into docs/benchmarks.md too

Each stage has a choice of strategies that was searched for its number of devices. Values pass
between meshes of different sizes in the time of a value between equal ones, which favours unlike
sizes. Only two sizes in a row and some points of each search are tried, which does not.
"""

from __future__ import annotations

import itertools
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.bert import Bert
from graphs.gpt import Gpt
from graphs.llama import Llama
from graphs.trained import LOSS
from sections import markdown_table, print_section

import tensoropt as to
from tensoropt.compiler.planning import staged
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.devices import StageDevices
from tensoropt.compiler.stages.families import FAMILIES, fitting
from tensoropt.compiler.stages.order import order_of
from tensoropt.compiler.stages.pipeline import pipelines_of
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.runtime.support.flags import run_command

__all__ = ["CASES", "Case", "rows"]

SEARCH_S, POINTS, LEVELS = 40.0, 4, 12

_TEXT = f"""\
## Stages of unlike sizes, if nothing had to be resharded

`python bench/stages/stage_sizes.py`: predicted training steps with stages on unlike numbers of
devices, over the frontier with equal ones. Two sizes in a row are tried in all ways, with
{POINTS} points of each search. Resharding between stages of unlike sizes is free, which favours
these plans; a whole search could find better ones. *ratio* is of the fastest plans; *by memory* has
the least, the mean and the most ratio at {LEVELS} sizes of memory from the leanest plan of unlike
stages to the fastest equal one.
"""


@dataclass(frozen=True)
class Case:
    """A model by the name of its row, on devices of a kind."""

    name: str
    model: Any
    device: str
    devices: int
    micro_batches: int


CASES = [
    Case("BERT-Large", Bert(), "v100", 8, 16),
    Case(
        "GPT 2.6B (Alpa's)",
        Gpt(layers=32, width=2560, heads=32, vocabulary=51200, sequence=1024),
        "v100",
        8,
        32,
    ),
    Case("LLaMA 3 8B", Llama(batch=1), "h100", 16, 16),
    Case("GPT-3 13B", Gpt(layers=40, width=5120, heads=40, batch=1), "a100", 16, 32),
]

_Plan = tuple[int, float]
"""The memory and the time of a plan."""


def rows(cases: Sequence[Case] = CASES) -> Iterator[list[str]]:
    """Yield the cells of each row of the table."""
    for case in cases:
        points, equal = _searched(case)
        unlike, sizes = _unlike(case, points)
        fastest = min(unlike, key=lambda own: own[1])
        least, most = min(unlike)[0], min(equal, key=lambda own: own[1])[0]
        levels = [least * (most / least) ** (n / (LEVELS - 1)) for n in range(LEVELS)]
        ratios = [_fastest_s(unlike, level) / _fastest_s(equal, level) for level in levels]
        mean = math.prod(ratios) ** (1 / LEVELS)
        best_s = _fastest_s(equal, math.inf)
        yield [
            f"{case.name}, {case.devices} {case.device}",
            format_seconds(best_s),
            "+".join(map(str, sizes[fastest])),
            f"{fastest[1] / best_s:.2f}",
            f"{min(ratios):.2f} {mean:.2f} {max(ratios):.2f}",
            format_bytes(least),
        ]


def _fastest_s(plans: Sequence[_Plan], most_bytes: float) -> float:
    """Return the time of the fastest plan within some memory."""
    return min((time_s for size, time_s in plans if size <= most_bytes * 1.0001), default=math.inf)


def _searched(case: Case) -> tuple[dict[int, list[FrontierPoint]], list[_Plan]]:
    """Return some points of each number of devices of a stage, and the frontier of equal stages."""
    found: dict[int, list[FrontierPoint]] = {}
    add = staged._Searched.add

    def keep(self: Any, own: Any, request: Any, graph: Any, result: Any) -> None:
        points = result.points
        step = max(1, math.ceil(len(points) / POINTS))
        found[case.devices // own.stages] = [*points[::step]]
        add(self, own, request, graph, result)

    with tempfile.TemporaryDirectory() as folder, patch.object(staged._Searched, "add", keep):
        model = to.load(case.model.build("model").save(Path(folder)))
        train = to.Training(LOSS, micro_batches=case.micro_batches)
        asked: Any = {"device": case.device, "train": train, "stages": "auto"}
        frontier = model.frontier(case.devices, search_time=SEARCH_S, **asked)
    return found, [(own.memory_bytes, own.time_s) for own in frontier]


def _unlike(
    case: Case, points: dict[int, list[FrontierPoint]]
) -> tuple[list[_Plan], dict[_Plan, list[int]]]:
    """Return all plans with stages of two sizes in a row, and the sizes of each."""
    sizes: dict[_Plan, list[int]] = {}
    for first, second in itertools.permutations(points, 2):
        for count in range(1, case.devices // first + 1):
            others, rest = divmod(case.devices - count * first, second)
            if rest or not others or count + others > case.micro_batches:
                continue
            for pair in itertools.product(points[first], points[second]):
                devices = StageDevices(pair, [count, others])
                most = len(order_of(devices.first.tables.graph).first_reads)
                for own in pipelines_of(devices, fitting(FAMILIES, devices.stages, most)):
                    plan = own.memory_bytes, own.time_s
                    sizes[plan] = [first] * count + [second] * others
    return [*sizes], sizes


def _table() -> str:
    head = ["model", "equal", "fastest unlike", "ratio", "by memory", "leanest unlike"]
    return markdown_table(head, "|---|---:|---|---:|---:|---:|", rows())


if __name__ == "__main__":
    sys.exit(run_command(lambda: print_section(__doc__, "stage_sizes", _TEXT, _table)))

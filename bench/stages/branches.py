"""Parallel branches: training steps with and without stages of their own for them.

    python bench/stages/branches.py            print the table
    python bench/stages/branches.py --write    into docs/benchmarks.md too

Both searches of a model are in one run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.bert import Bert
from graphs.clip import Clip
from graphs.towers import Towers
from graphs.trained import LOSS
from sections import markdown_table, print_section

import tensoropt as to
from stages.schedule_rules import searched_devices
from tensoropt.compiler.stages.chunk_costs import NodeTimes
from tensoropt.compiler.stages.pipeline import pipelines_of
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.runtime.support.flags import run_command

__all__ = ["CASES", "Case", "rows"]

DEVICES, MICRO_BATCHES, SEARCH_S = 16, 16, 30.0

_TEXT = f"""\
## Stages for parallel branches

`python bench/stages/branches.py`: predicted training steps on {DEVICES} V100 in {MICRO_BATCHES}
micro-batches, without recomputation, from two searches with `--stages auto`. In the first one, all
stages are a chain. *ratio* is of the times of the fastest plans, and *memory* is theirs. *as fast*
is the least memory of a plan that is as fast as the fastest chain, over the memory of that chain.
*1F1B* is the time of the fastest 1F1B schedule of all searched strategies, over its time in a
chain. GraphPipe (Jeon et al., 2024) reports up to 1.6 times the throughput of chains of stages. The
last model has no branches.
"""


@dataclass(frozen=True)
class Case:
    """A model by the name of its row."""

    name: str
    model: Any


CASES = [
    Case("4 towers of 8 layers", Towers(layers=(8, 8, 8, 8))),
    Case("2 towers of 8 and 6 layers, trunk and end of 4", Towers(layers=(8, 6), trunk=4, end=4)),
    Case(
        "CLIP ViT-L/14",
        Clip(
            layers=24,
            width=1024,
            heads=16,
            patch=14,
            text_width=768,
            text_heads=12,
            batch=16,
            dtype="float16",
        ),
    ),
    Case("BERT-Large", Bert(batch=4, sequence=256, dtype="float16")),
]


def rows(cases: list[Case] = CASES) -> Iterator[list[str]]:
    """Yield the cells of each row of the table."""
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            model = to.load(case.model.build("model").save(Path(folder)))
            with _chain():
                chain = _frontier(model)
            found = _frontier(model)
            before, after = chain.fastest, found.fastest
            as_fast = min(own.memory_bytes for own in found if own.time_s <= before.time_s)
            with _chain():
                alone_s = _1f1b_s(found)
            yield [
                case.name,
                format_seconds(before.time_s),
                format_seconds(after.time_s),
                f"{after.time_s / before.time_s:.2f}",
                format_bytes(before.memory_bytes),
                format_bytes(after.memory_bytes),
                f"{as_fast / before.memory_bytes:.2f}",
                f"{_1f1b_s(found) / alone_s:.2f}",
            ]


def _chain() -> Any:
    """Return a context in which programs have no branches."""
    return patch.object(NodeTimes, "branches", lambda _, chunks: [])


def _frontier(model: to.Model) -> to.Frontier:
    train = to.Training(LOSS, micro_batches=MICRO_BATCHES, recompute="none")
    return model.frontier(DEVICES, device="v100", train=train, stages="auto", search_time=SEARCH_S)


def _1f1b_s(found: to.Frontier) -> float:
    devices = searched_devices(found)
    return min(own.time_s for each in devices for own in pipelines_of(each, ["1f1b"]))


def _table() -> str:
    head = ["model", "chain", "branches", "ratio", "memory", "branches", "as fast", "1F1B"]
    return markdown_table(head, "|---|" + "---:|" * (len(head) - 1), rows())


if __name__ == "__main__":
    sys.exit(run_command(lambda: print_section(__doc__, "stages_branches", _TEXT, _table)))

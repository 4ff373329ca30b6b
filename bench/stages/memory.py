"""Memory of the fullest stage that the search predicts, over the memory of the plan's graphs.

python bench/stages/memory.py            print the table
python bench/stages/memory.py --write    into docs/benchmarks.md too
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.catalog import Model
from graphs.gpt import Gpt
from graphs.llama import Llama
from graphs.trained import LOSS
from sections import print_section

import tensoropt as to
from tensoropt.compiler.search.frontier.points import stages_of
from tensoropt.compiler.stages.names import SCHEDULES
from tensoropt.runtime.support.flags import run_command

__all__ = ["CASES", "Case", "ratio"]

MODELS: Mapping[str, Model] = {
    "gpt": Gpt(
        layers=8, width=1024, heads=8, vocabulary=2048, sequence=512, batch=4, dtype="float16"
    ),
    "llama": Llama(
        layers=8, width=128, heads=4, groups=2, inner=256, vocabulary=512, sequence=64, batch=2,
        dtype="float32",
    ),
}  # fmt: skip
_TEXT = """\
## Memory of stages, as searched and as compiled

`python bench/stages/memory.py`: the memory of the fullest stage that the search predicts, over the
memory of the graphs that the plan has, for 8 micro-batches on H100.
"""


@dataclass(frozen=True)
class Case:
    """A model on ``devices`` in ``stages``, with a recompute policy."""

    model: str
    devices: int
    stages: int
    recompute: str


CASES: Sequence[Case] = [
    *(Case("gpt", 8, 2, policy) for policy in ("none", "light", "blocks")),
    *(Case("gpt", 8, 4, policy) for policy in ("none", "light", "blocks")),
    *(Case("llama", 4, 4, policy) for policy in ("none", "blocks")),
]


def ratio(case: Case, schedule: str, folder: Path) -> float:
    """Return the predicted over the compiled memory of the fastest plan of a schedule."""
    path = folder / f"{case.model}.onnx"
    if not path.exists():
        path = MODELS[case.model].build(case.model).save(folder)
    training = to.Training(LOSS, micro_batches=8, recompute=case.recompute)
    asked = {"device": "h100", "train": training, "stages": case.stages, "search": "expert"}
    found = to.load(path).frontier(case.devices, schedule=schedule, **asked)
    point = next(own for own in found if stages_of(own.found) > 1)
    return point.process_bytes / point.compile(folder / "plan").predicted.process_bytes


def _table() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield f"| model | stages | recomputes | {' | '.join(SCHEDULES)} |"
    yield "|---|---:|---|" + "---:|" * len(SCHEDULES)
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            found = (f"{ratio(case, schedule, Path(folder)):.2f}" for schedule in SCHEDULES)
            head = f"{case.model} on {case.devices} | {case.stages} | {case.recompute}"
            yield f"| {head} | {' | '.join(found)} |"


if __name__ == "__main__":
    sys.exit(run_command(lambda: print_section(__doc__, "stages_memory", _TEXT, _table)))

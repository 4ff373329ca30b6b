"""Predicted steps of Alpa's pipeline, next to its published one.

    python bench/stages/alpa.py            print the table
    python bench/stages/alpa.py --write    into docs/benchmarks.md too

benchmark/alpa/README.md of alpa-projects/alpa: GPT of 2.6B on 8 V100 of 16 GB.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.gpt import Gpt
from sections import print_section

from stages.layered import Degrees, even_chunks, predict
from stages.systems import System
from tensoropt.compiler.cost.device import load_device
from tensoropt.runtime.support.flags import run_command

_FUSED = System(
    attention="operators", fuses=True, precision="float16", recompute="blocks", parameter_bytes=2,
    gradient_bytes=2, optimizer_bytes=12, shards_moments=True,
)  # fmt: skip
_DEGREES = Degrees(2, 2, 2, even_chunks(32, 2), 4, 4)
_GPT = Gpt(width=2560, heads=32, vocabulary=51200, sequence=1024)
_STEP_S, _MEMORY_BYTES = 2.464, 8.745e9
_TEXT = """\
## A step of Alpa, with pipelines

`make bench-stages ARGS=--write`: the published step, and the same step predicted. V100 is a data
sheet, and XLA's kernels are between the two rows: some of the element-wise operators are fused.
Pipelines of torchtitan and Llama 3 are with
[training at long sequences](#published-training-at-long-sequences).
"""


def table() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "| step | time | predicted | memory | predicted |"
    yield "|---|---:|---:|---:|---:|"
    device = load_device("v100")
    for name, system in (("fused", _FUSED), ("not fused", replace(_FUSED, fuses=False))):
        step = predict(_GPT, system, _DEGREES, [[device]] * _DEGREES.stages)
        time = f"{step.time_s:.2f} s ({step.time_s / _STEP_S:.2f})"
        memory = f"{step.memory_bytes / 1e9:.1f} GB ({step.memory_bytes / _MEMORY_BYTES:.2f})"
        published = f"{_MEMORY_BYTES / 1e9:.1f} GB"
        yield f"| GPT 2.6B, {name} | {_STEP_S} s | {time} | {published} | {memory} |"


if __name__ == "__main__":
    sys.exit(run_command(lambda: print_section(__doc__, "stages_alpa", _TEXT, table)))

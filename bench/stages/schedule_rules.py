"""Schedules without each of the rules that make them: times over the times with all rules.

    python bench/stages/schedule_rules.py            print the table
    python bench/stages/schedule_rules.py --write    into docs/benchmarks.md too

The chunks are of plans of `--search expert`, for each number of stages.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.catalog import MODELS
from graphs.trained import LOSS
from sections import print_section

import tensoropt as to
from tensoropt.compiler.planning.staged import StagedPoint
from tensoropt.compiler.stages.devices import StageDevices
from tensoropt.compiler.stages.families import BY_STAGES, FAMILIES, Family
from tensoropt.compiler.stages.pipeline import pipelines_of
from tensoropt.runtime.support.flags import run_command

__all__ = ["CASES", "Case", "ratios", "searched_devices"]

_TEXT = """\
## Schedules without each of their rules

`python bench/stages/schedule_rules.py`: steps of GPT-3 13B, LLaMA 3 70B and GPT-3 175B in 4 to 32
stages of H100, one micro-batch per device, without recomputation. Each column leaves out a
rule: the time of the fastest schedule of a family over its time with all rules, as mean and range.
Schedules that fill the memory have rows of their own. The last column has cuts into equal chunks.
"""


@dataclass(frozen=True)
class Case:
    """A model of the catalog on ``devices``, and the numbers of stages."""

    model: str
    devices: int
    stages: Sequence[int]


CASES = [
    Case("gpt3_13b", 32, (4, 8, 16, 32)),
    Case("llama3_70b", 32, (4, 8, 16, 32)),
    Case("gpt3_175b", 64, (4, 8, 16, 32)),
]


def _without_lead(family: Family) -> Family:
    return replace(family, lead=Family().lead) if family.splits_weights else family


def _without_even_stages(family: Family) -> Family:
    kept = tuple(own for own in family.evenness if own not in BY_STAGES)
    return replace(family, evenness=kept or ("chunks",))


def _with_even_chunks(family: Family) -> Family:
    return replace(family, evenness=("chunks",))


RULES = {
    "forward passes lead": _without_lead,
    "stages end together": _without_even_stages,
    "cuts follow the schedule": _with_even_chunks,
}
"""The rules by name, and families without them."""

Key = tuple[str, bool]
"""A family, and whether its schedules fill the memory."""


def ratios(case: Case, folder: Path) -> Iterator[tuple[str, Key, float]]:
    """Yield for each rule and family the time without the rule over the time with it."""
    model: Any = MODELS[case.model]
    path = replace(model, batch=1).build(case.model).save(folder)
    training = to.Training(LOSS, micro_batches=case.devices, recompute="none")
    asked = {"device": "h100", "train": training, "search": "expert", "schedule": "1f1b"}
    for stages in case.stages:
        found = to.load(path).frontier(case.devices, stages=stages, **asked)
        for devices in searched_devices(found):
            times_s = _times_s(devices, FAMILIES)
            for rule, without in RULES.items():
                others = {name: without(own) for name, own in FAMILIES.items()}
                changed = {name: own for name, own in others.items() if own != FAMILIES[name]}
                with patch.dict(FAMILIES, changed):
                    for key, time_s in _times_s(devices, changed).items():
                        if key in times_s:
                            yield rule, key, time_s / times_s[key]


def searched_devices(found: to.Frontier) -> Collection[StageDevices]:
    """Return the strategies that were searched, on their stages, of all pipelines of a frontier."""
    staged = (own.found for own in found if isinstance(own.found, StagedPoint))
    return {id(own.pipeline.point): own.pipeline.devices for own in staged}.values()


def _times_s(devices: StageDevices, names: Iterable[str]) -> Mapping[Key, float]:
    """Return the least time of some families, and of their schedules that fill the memory."""
    found: dict[Key, float] = {}
    for name in names:
        full_s: set[float] = set()
        for own in pipelines_of(devices, [name]):
            is_filled = FAMILIES[name].fills and own.fits and bool(full_s)
            full_s |= set() if own.fits else {own.time_s}
            key = name, is_filled
            found[key] = min(found.get(key, own.time_s), own.time_s)
    return found


def _table() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    every: dict[tuple[str, Key], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            for rule, key, ratio in ratios(case, Path(folder)):
                every.setdefault((rule, key), []).append(ratio)
    yield f"| schedule | cases | {' | '.join(RULES)} |"
    yield "|---|---:|" + "---:|" * len(RULES)
    for key in dict.fromkeys(key for _, key in every):
        rows = [every.get((rule, key), []) for rule in RULES]
        cells = [
            f"{geometric_mean(own):.3f}, {min(own):.2f} to {max(own):.2f}" if own else "-"
            for own in rows
        ]
        name = f"{key[0]}, filled" if key[1] else key[0]
        yield f"| {name} | {max(map(len, rows))} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(run_command(lambda: print_section(__doc__, "schedule_rules", _TEXT, _table)))

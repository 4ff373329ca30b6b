"""What comparisons of speed have in common: the plan that is timed, how often, and the flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from train_plans import extremes

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.points import fastest

__all__ = ["Program", "Sizes", "planned", "speed_parser"]

Program = Callable[[Path], driver.ir.Module]
"""Makes what is planned of the model in a file: a forward pass, or a training step."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured: turns, and steps or runs of each, on so many ranks."""

    ranks: int = 2
    rounds: int = 9
    steps: int = 5


def planned(program: Program, path: Path, search: str, ranks: int, folder: Path) -> Path:
    """Write the fastest plan that a search finds for a program of the model ``path``."""
    request, target = replace(extremes(ranks), search=search), folder / search
    module = program(path)
    result = driver.frontier(module, request)
    driver.settle(module, fastest(result.points), request, result)
    driver.compile_plan(module, path, target)
    return target


def speed_parser(text: str | None, models: Iterable[str]) -> argparse.ArgumentParser:
    """Return the parser of the flags that all have, under what they say of themselves."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", choices=[*models, []], help="default all")
    parser.add_argument("--ranks", type=int, default=Sizes.ranks)
    parser.add_argument("--rounds", type=int, default=Sizes.rounds)
    parser.add_argument("--steps", type=int, default=Sizes.steps, help="or runs, of one turn")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser

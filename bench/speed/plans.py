"""Shared parts of the comparisons of speed: the timed plan, sizes, and flags."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from train_plans import extremes

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.points import fastest
from tensoropt.runtime.support.flags import Parser

__all__ = ["Program", "Sizes", "planned", "speed_parser"]

Program = Callable[[Path], driver.ir.Module]
"""Builds the module to plan from the model in a file: a forward pass or a training step."""


@dataclass(frozen=True)
class Sizes:
    """Amount of measurement: number of ranks, of turns, and of steps or runs in each turn."""

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


def speed_parser(text: str | None, models: Iterable[str]) -> Parser:
    """Return a parser of the shared flags, with the description ``text``."""
    parser = Parser(description=text)
    parser.add_argument("models", nargs="*", choices=[*models, []], help="default all")
    parser.add_argument("--ranks", type=int, default=Sizes.ranks)
    parser.add_argument("--rounds", type=int, default=Sizes.rounds)
    parser.add_argument("--steps", type=int, default=Sizes.steps, help="or runs, of one turn")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser

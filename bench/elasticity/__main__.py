"""Measure elastic jobs: the stall of a switch, the overhead of a coordinator, the loss curve.

    python bench/elasticity                      all of it, on this machine's cores
    python bench/elasticity stalls --rounds 5    one part: stalls, large, overhead, curves
    python bench/elasticity --write              into docs/benchmarks.md too, with a picture

*stalls* switches a job on 1 and 2 devices from plan to plan, alternately live and by stopping and
resuming; *large* does the same with a state of 1 GB. *overhead* lets a job under a coordinator and
tensoropt-run take turns. *curves* compares a job that is switched 20 times in 200 steps, among
plans for 1, 2 and 4 devices, with an unbroken run on one device. With --write, parts that are not
measured retain their figures of docs/elastic-stalls.json.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from elasticity.curves import drawn, run_curve
from elasticity.overhead import measure_overhead
from elasticity.results import curve_facts, move_facts, overhead_facts, write_all
from elasticity.stalls import copied_per_s, measure_stalls
from elasticity.subjects import CURVES, LARGE, SWITCHED, Recipe, prepare
from tensoropt.runtime.support.flags import Parser, run_command

_STEPS, _SWITCHES, _SEED = 200, 20, 11

Facts = list[dict[str, object]]


def _stalls(recipes: Mapping[str, Recipe], rounds: int, folder: Path) -> Facts:
    found: Facts = []
    for name, recipe in recipes.items():
        subject = prepare(name, recipe, folder / name, devices=2)
        copied = copied_per_s()
        moves = measure_stalls(subject, rounds, folder / name)
        found += [move_facts(name, move, copied) for move in moves]
    return found


def _overhead(rounds: int, folder: Path) -> Facts:
    found: Facts = []
    for name, recipe in SWITCHED.items():
        subject = prepare(name, recipe, folder / name, devices=2)
        ways = measure_overhead(subject, "1", 10 * rounds, folder / name)
        found.append(overhead_facts(name, ways))
    return found


def _curves(folder: Path) -> Facts:
    found: Facts = []
    for name, recipe in CURVES.items():
        subject = prepare(name, recipe, folder / name, devices=4)
        switches = drawn(subject.family, _STEPS, _SWITCHES, _SEED)
        found.append(curve_facts(name, run_curve(subject, _STEPS, switches, folder / name)))
    return found


def main() -> None:
    """Measure the requested parts, and print the results."""
    given = _parser().parse()
    parts: Mapping[str, Callable[[Path], Facts]] = {
        "stalls": lambda folder: _stalls(SWITCHED, given.rounds, folder),
        "large": lambda folder: _stalls(LARGE, given.rounds, folder),
        "overhead": lambda folder: _overhead(given.rounds, folder),
        "curves": _curves,
    }
    found: dict[str, Facts] = {}
    for name in given.parts or parts:
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            os.environ["TENSOROPT_JOBS"] = str(Path(folder) / "jobs")
            found[name] = parts[name](Path(folder))
    print(write_all(found, is_kept=given.write))


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parts = ["stalls", "large", "overhead", "curves"]
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="default all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))

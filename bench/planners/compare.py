"""Our plans next to the plans of Sailor's nine planners, judged by its simulator.

    python bench/planners/compare.py ../sailor                  a checkout of eth-easl/sailor
    python bench/planners/compare.py ../sailor --python ../env/bin/python --without Aceso
    python bench/planners/compare.py ../sailor --case OPT-350=A100-40:32 --only Sailor --only AMP
    python bench/planners/compare.py ../sailor --write          into docs/benchmarks.md too

Each planner answers for each model and cluster, with the profiles that the checkout has for it. Of
its plans, the first that fits by Sailor's simulator counts, as in Sailor's own comparison. Our
plans and the plans of Sailor's planner come from the profiles that the simulator reads. Nothing
needs a GPU, and nothing is written into the checkout. `--python` names a Python with the packages
of the planners: einops, pandas, pybind11, pymetis, scipy, torch, tqdm, transformers; four planners
are built with g++ and jsoncpp. Exits with 1 if a planner cannot be built or loaded: `--without`
leaves it out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sections import write_section

from planners.contestants import PLANNERS
from planners.ours import fastest_step
from planners.profiles import read_profiles
from planners.workplace import PACKAGES, Workplace
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["CASES", "Case", "Row", "section", "summary", "table"]

OURS = "tensoropt"
_LONG_S = 10.0  # printed in whole seconds
TRAININGS = {
    "OPT-350": "training_config_opt_350.json",
    "GPT-Neo-2.7": "training_config_gpt_neo27.json",
}
"""The training configurations of the checkout by model."""
_TEXT = """\
## Our plans next to the plans of nine planners, by Sailor's simulator

`make bench-planners ARGS="../sailor --write"` takes a checkout of
[Sailor](https://github.com/eth-easl/sailor), which has nine planners, profiles of layers and links,
and a simulator of a training step. Each planner answers with a list of plans; the first that fits
in memory counts, as in Sailor's own comparison. *Time to answer* is the time of the search alone.
The columns *step* and *memory* are the simulator's, and *degrees* are stages, GPUs of a tensor
group, replicas and the micro-batch.

**Costs.** Our plans use Sailor's profiles instead of our device descriptions: the time of each
layer by kind of GPU, tensor degree and micro-batch, its size, and the bandwidth between nodes. The
simulator and Sailor's planner read the same profiles. The other planners have costs of their own,
so a plan of theirs can be slow here because they predict other times.

**Search.** Our plans have the cuts, 1F1B and its execution of `compiler/stages`; on unlike GPUs
each kind has a group of stages. All tensor degrees, micro-batches and numbers of equal stages that
use every GPU are tried. No strategies within a layer are searched, as profiles have one for each
degree. Three properties of Sailor's runs are given: 24 bytes per parameter, 2 or 3 GB for a process
besides tensors, and stages that compute nothing while they send.

**Not judged.** The simulator takes a layer without a profile as instant, and leaves computation out
of tensor groups of several machines. Such plans are passed over, and the last column names them.
GPUs of one kind in one node count as one machine. Aceso's plans have a simulator of their own, of
single operators, with two large files that a copy of the repository may lack.

The tables are from a machine with two cores that did other work too. Metis stops itself after five
minutes, and any planner is stopped after six.
"""


@dataclass(frozen=True)
class Case:
    """A model and a cluster: the number of GPUs of each kind."""

    model: str
    gpus: tuple[tuple[str, int], ...]

    @classmethod
    def read(cls, text: str) -> Case:
        """Return the case of a text such as `OPT-350=A100-40:32`."""
        model, _, cluster = text.partition("=")
        pairs = [own.rpartition(":") for own in cluster.split(",")]
        if model not in TRAININGS or not all(gpu and count.isdigit() for gpu, _, count in pairs):
            models = " or ".join(TRAININGS)
            raise UserError(f"--case: expected {models}, and GPUs as =A100-40:32, got: {text}")
        return cls(model, tuple((gpu, int(count)) for gpu, _, count in pairs))

    @property
    def cluster(self) -> str:
        return " + ".join(f"{count} {gpu}" for gpu, count in self.gpus)

    def request(self, planner: str) -> dict[str, Any]:
        return {"planner": planner, "training": TRAININGS[self.model], "gpus": dict(self.gpus)}


CASES = tuple(
    map(
        Case.read,
        (
            "OPT-350=A100-40:32",
            "OPT-350=A100-40:80",
            "OPT-350=A100-40:128",
            "OPT-350=GH-96:32",
            "GPT-Neo-2.7=A100-40:32",
            "OPT-350=A100-40:32,V100-16:96",
            "GPT-Neo-2.7=A100-40:32,V100-16:96",
        ),
    )
)
"""Sailor's two models with training configurations, on clusters of its traces and of its paper."""


@dataclass(frozen=True)
class Row:
    """The answer of a planner for a case, judged; without a time it has no plan that counts.

    ``degrees`` are stages, GPUs of a tensor group, replicas and the micro-batch.
    """

    planner: str
    search_s: float | None = None
    degrees: str = ""
    time_s: float | None = None
    memory_bytes: int = 0
    note: str = ""

    @classmethod
    def read(cls, planner: str, answer: dict[str, Any]) -> Row:
        """Return the row of an answer of `inside.py`."""
        if "failure" in answer:
            return cls(planner, note=answer["cause"].replace("|", "/"))
        objections = answer["objections"]
        notes = [f"{len(objections)} not judged: {objections[0]}"] if objections else []
        if not answer["number"]:
            notes.insert(0, f"none of {answer['plans']} plans fits")
            return cls(planner, answer["search_s"], note="; ".join(notes))
        if answer["number"] > 1:
            notes.insert(0, f"plan {answer['number']} of {answer['plans']}")
        return cls(
            planner,
            answer["search_s"],
            answer["summary"],
            answer["time_s"],
            answer["memory_bytes"],
            "; ".join(notes),
        )

    def cells(self, best_s: float | None) -> str:
        """Return the cells of a table; ``best_s`` is the time of our plan."""
        places = 2 if (self.search_s or 0.0) < _LONG_S else 0
        search = "" if self.search_s is None else f"{self.search_s:.{places}f} s"
        if self.time_s is None:
            return f"{self.planner} | {search} | | | | | {self.note}"
        ratio = "" if best_s is None else f"{self.time_s / best_s:.3f}"
        step = f"{self.time_s:.2f} s | {self.memory_bytes / 1e9:.1f} GB | {ratio}"
        return f"{self.planner} | {search} | {self.degrees} | {step} | {self.note}"


def ours(place: Workplace, case: Case, limit_s: float) -> Row:
    """Return our plan of a case, judged."""
    gpus = dict(case.gpus)
    profiles = read_profiles(place.planning, TRAININGS[case.model], gpus)
    for gpu, count in case.gpus:
        if count % (size := profiles.kinds[gpu].gpus_per_node):
            raise UserError(f"--case: expected nodes of {size} {gpu}, got: {count}")
    begun_s = time.perf_counter()
    step = fastest_step(profiles, gpus)
    search_s = time.perf_counter() - begun_s
    if step is None:
        return Row(OURS, search_s, note="no plan fits")
    answer = place.run({**case.request(OURS), "plans": [step.plan()]}, limit_s)
    if "failure" in answer:
        raise UserError(f"{OURS}: {case.cluster}: {answer['failure']}: {answer['cause']}")
    return Row.read(OURS, {**answer, "search_s": search_s})


def table(case: Case, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table, our plan first and the others by their times."""
    own = next(row for row in rows if row.planner == OURS)
    others = [row for row in rows if row is not own]
    others.sort(key=lambda row: (row.time_s is None, row.time_s or 0.0))
    yield f"{case.model} on {case.cluster}:\n"
    head = "time to answer | degrees | step | memory | / ours"
    yield f"| planner | {head} | |"
    yield "|---|---:|---|---:|---:|---:|---|"
    for row in [own, *others]:
        yield f"| {row.cells(own.time_s)} |"


def summary(found: Sequence[tuple[Case, Sequence[Row]]]) -> Iterator[str]:
    """Yield the lines of the table of our plans next to the best of the others."""
    yield "| model | cluster | ours | best of the others | / ours |"
    yield "|---|---|---:|---:|---:|"
    judged = good = 0
    for case, rows in found:
        own = next(row for row in rows if row.planner == OURS).time_s
        others = [(row.time_s, row.planner) for row in rows if row.planner != OURS]
        best_s, name = min(
            ((time_s, name) for time_s, name in others if time_s is not None), default=(None, "")
        )
        cells = "none" if own is None else f"{own:.2f} s"
        best = "none" if best_s is None else f"{best_s:.2f} s, {name}"
        ratio = "" if own is None or best_s is None else f"{best_s / own:.3f}"
        yield f"| {case.model} | {case.cluster} | {cells} | {best} | {ratio} |"
        judged += best_s is not None
        good += best_s is not None and own is not None and own <= best_s
    yield f"\nOurs is at least as fast as the best of the others in {good} of {judged} cases."


def section(found: Sequence[tuple[Case, Sequence[Row]]], planners: Sequence[str]) -> str:
    """Return the section of the documentation; planners that did not run are named."""
    lines = [_TEXT, *summary(found), ""]
    if rest := [name for name in PLANNERS if name not in planners]:
        lines += [f"Left out: {', '.join(rest)}.", ""]
    for case, rows in found:
        lines += [*table(case, rows), ""]
    return "\n".join(lines)


class _Contest:
    """All planners on all cases; planners that cannot be built or loaded are left out, named."""

    def __init__(self, place: Workplace, planners: Sequence[str], limit_s: float) -> None:
        self.place, self.limit_s = place, limit_s
        self.planners = [name for name in planners if self._builds(name)]
        self.refused = len(self.planners) < len(planners)

    def rows(self, case: Case) -> list[Row]:
        rows = [ours(self.place, case, self.limit_s)]
        for name in [*self.planners]:
            if len(case.gpus) > 1 and not PLANNERS[name].mixes:
                rows.append(Row(name, note="plans one kind of GPU"))
                continue
            answer = self.place.run(case.request(name), self.limit_s)
            if answer.get("failure") == "load":
                self._refuse(
                    f"{name}: expected {PACKAGES}, and a whole checkout, got: {answer['cause']}"
                )
                self.planners.remove(name)
            else:
                rows.append(Row.read(name, answer))
        return rows

    def _builds(self, name: str) -> bool:
        try:
            self.place.build(name)
        except UserError as error:
            self._refuse(f"{error} (needs g++, pybind11 and jsoncpp)")
            return False
        return True

    def _refuse(self, message: str) -> None:
        self.refused = True
        print(f"error: {message}; --without leaves a planner out", file=sys.stderr, flush=True)


def _parser() -> Parser:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of github.com/eth-easl/sailor")
    parser.add_argument("--python", default=sys.executable, help="with the planners' packages")
    parser.add_argument("--only", action="append", choices=PLANNERS, help="this planner; repeat")
    parser.add_argument("--without", action="append", choices=PLANNERS, default=[])
    parser.add_argument("--case", action="append", help="MODEL=GPU:COUNT[,GPU:COUNT]; repeat")
    parser.add_argument("--limit", type=float, default=360.0, help="seconds for an answer")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser


def main() -> int:
    given = _parser().parse()
    cases = [Case.read(text) for text in given.case] if given.case else CASES
    planners = [name for name in given.only or PLANNERS if name not in given.without]
    found = []
    with tempfile.TemporaryDirectory(prefix="tensoropt-") as folder:
        place = Workplace(given.checkout, given.python, Path(folder))
        contest = _Contest(place, planners, given.limit)
        for case in cases:
            rows = contest.rows(case)
            found.append((case, rows))
            print("\n".join([*table(case, rows), ""]), flush=True)
    print("\n".join(summary(found)))
    if given.write:
        write_section("planners", section(found, planners))
    return 1 if contest.refused else 0


if __name__ == "__main__":
    sys.exit(run_command(main))

"""Mixtures of experts that send tokens to the ranks of their experts, or share them.

    python bench/speed/experts.py                     both models, 2 and 4 ranks, two links
    python bench/speed/experts.py qwen --ranks 2 --links 1e9
    python bench/speed/experts.py --write             the table into docs/benchmarks.md too

Each model gets one plan per form, the fastest one in which all its mixtures have that form:

- *sent*: an axis splits tokens and experts together. Ranks exchange the tokens.
- *shared*: an axis splits the experts. Each rank has all tokens and runs its own experts.
- *features*: an axis splits the inner features of all experts.
- *whole*: an axis splits the tokens. Each rank has all experts.

*found* is the form in the fastest plan without pins that takes no more memory than *sent*. The
library simulates the link: collectives
sleep for the time that they would take on it, and then move their bytes through memory. The rates
of the description make the predicted step of one rank as long as the measured one. With more ranks
than cores, they are lower. Steps of all forms take turns (`turns`), and their outputs must agree
with one rank.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
from graphs.llama import Llama
from linked import environment_of_link, write_linked
from sections import write_section
from train_plans import Recipe, extremes, trained
from train_runs import trained_by_turns
from training_data import draw
from turns import Gate, Place, Turn, busy_note, ratio_of, take_turns

from speed.contenders import Outputs, check_outputs, run_by_ranks
from speed.inference import forward_pass
from tensoropt.compiler.calibrate.machine_load import busy_fraction
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.search.frontier.points import fastest
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["FORMS", "MODELS", "Case", "Row", "measure", "planned", "table"]

_SMALL = Llama(
    layers=2, width=512, heads=8, groups=4, vocabulary=512, sequence=64, batch=8, dtype="float32"
)
MODELS: Mapping[str, Llama] = {
    "mixtral": replace(_SMALL, inner=256, experts=8, choices=2),
    "qwen": replace(_SMALL, inner=64, experts=64, choices=8),
}
"""Mixtral 8x7B and Qwen3-30B-A3B with small layers, so that links matter on cores too."""

_MIXTURE = "node:*mixture={} -> {}"
FORMS: Mapping[str, str] = {
    "sent": _MIXTURE.format("[S(0)] [S(0)] [S(0)] * [S(0)]", "[S(0)]"),
    "shared": _MIXTURE.format("[R] [R] [S(0)] * [S(0)]", "[P(sum)]"),
    "features": _MIXTURE.format("[R] [R] [S(1)] * [S(2)]", "[P(sum)]"),
    "whole": _MIXTURE.format("[S(0)] [S(0)] [R] * [R]", "[S(0)]"),
}
"""The pin of each form: layouts of tokens, scores, both weights and the result."""

_NAMES = {("S(0)", "S(0)"): "sent", ("R", "S(0)"): "shared", ("R", "S(1)"): "features"}
_NAMES |= {("S(0)", "R"): "whole"}
"""The form by the layouts of tokens and of the first weight."""

_ONE, _WARM_UP, _FIRST = "one rank", 2, 5
_RECIPE, _LOSSES = Recipe("adam", 1e-3), 3
"""Losses after a few steps differ more: rounding swaps experts of nearly equal scores."""
_ROOM = 1.02
"""The memory that the found plan may take, times the memory of *sent*."""
_PASS = """\
## Mixtures that send tokens, or share them

`python bench/speed/experts.py --write`: forward passes of two small layers, as in Mixtral 8x7B
(8 experts, 2 per token) and Qwen3-30B-A3B (64 experts, 8 per token), {tokens} tokens in float32, on
ranks of one thread and a simulated link. Forms of the mixtures: *sent*, tokens travel to the
ranks of their experts and back; *shared*, each rank has all tokens and runs its own experts;
*features*, each rank has a part of every expert; *whole*, each rank has all experts. Times are in
ms. """
_STEP = """\
## Training of mixtures that send tokens, or share them

`python bench/speed/experts.py --train --write`: training steps by Adam of the models above, without
recomputation. In *sent*, tokens also travel with the gradients of their results, and their own
gradients travel back. """
_TEXT = """\
Measured times are the median of {rounds} turns of {steps} runs, and the last ratio is the
median over neighbouring turns. *sending* includes the copies for it. Memory is the predicted memory
of a rank's tensors. The fastest plan that takes no more memory than *sent* has the form marked
with *.

{table}

{busy}"""


@dataclass(frozen=True)
class Case:
    """A model, its number of ranks, and the simulated link between them."""

    model: str
    ranks: int
    bytes_per_s: float
    latency_s: float = 20e-6
    trains: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """The variables that simulate the link."""
        return environment_of_link(self.latency_s, self.bytes_per_s)


@dataclass(frozen=True)
class Row:
    """The plans of a case by form, the form that the search finds, and the turns of each."""

    case: Case
    points: Mapping[str, FrontierPoint]
    found: str
    turns: Mapping[str, Sequence[Turn]]

    def rows(self) -> list[list[str]]:
        """Return the cells of a line per form."""
        case, shared = self.case, self.points["shared"].time_s
        link = f"{case.bytes_per_s / 1e6:g} MB/s"
        found = []
        for form, point in self.points.items():
            measured_s = statistics.median(turn.step_s for turn in self.turns[form])
            times = [point.time_s, point.communication_s, measured_s]
            ratios = point.time_s / shared, ratio_of(self.turns[form], self.turns["shared"])
            figures = [*(f"{1e3 * own:.1f}" for own in times), *(f"{own:.2f}" for own in ratios)]
            memory = f"{point.memory_bytes / 2**20:.0f} MiB"
            name = f"{form} *" if form == self.found else form
            found.append([case.model, str(case.ranks), link, name, *figures, memory])
        return found


def program_of(path: Path, case: Case) -> driver.ir.Module:
    """Return the forward pass of a model, or its training step without recomputation."""
    return trained(path, _RECIPE, "none") if case.trains else forward_pass(path)


def planned(path: Path, case: Case, device: Path, pin: str, folder: Path) -> FrontierPoint:
    """Return the fastest plan of a case with ``pin``, after writing it to ``folder``."""
    mesh = str(case.ranks)
    request = replace(extremes(case.ranks), mesh=mesh, device=str(device), pins=(pin,))
    module = program_of(path, case)
    result = driver.frontier(module, request)
    point = fastest(result.points)
    driver.settle(module, point, request, result)
    driver.compile_plan(module, path, folder)
    return point


def found_form(path: Path, case: Case, device: Path, memory_bytes: int) -> str:
    """Return the form of the mixtures in the fastest plan that takes ``memory_bytes`` at most."""
    mesh = str(case.ranks)
    request = Request(case.ranks, mesh=mesh, device=str(device), epsilon=0.05)
    points = driver.frontier(program_of(path, case), request).points
    fits = [point for point in points if point.memory_bytes <= memory_bytes]
    return form_of(fastest(fits)) if fits else "none"


def form_of(point: FrontierPoint) -> str:
    """Return the form of the mixtures of a plan, several joined by a plus sign."""
    nodes, forms = point.tables.graph.nodes, dict[str, None]()
    for index, strategy in point.strategies.items():
        node = nodes[index]
        if isinstance(node, Op) and node.info.name == "com.microsoft.MoE":
            texts = [layout.texts[0] for layout in (*strategy.operands, *strategy.results)]
            forms[_NAMES.get((texts[0], texts[2]), "whole on each")] = None
    return " + ".join(forms)


def measure(
    model: Llama, cases: Sequence[Case], given: argparse.Namespace, folder: Path
) -> list[Row]:
    """Return the rows of the cases of a model. Raises ValueError if outputs differ."""
    path, data = model.build("model").save(folder, seed=0), folder / "data.npz"
    np.savez(data, **draw(path, model.batch))
    slower, wanted = _slower(path, data, folder / "one", trains=given.train)
    found = []
    for number, case in enumerate(cases):
        own = folder / f"case{number}"
        own.mkdir()
        device = _described(own, case, slower * max(1.0, case.ranks / (os.cpu_count() or 1)))
        points = {form: planned(path, case, device, pin, own / form) for form, pin in FORMS.items()}
        free = found_form(path, case, device, round(_ROOM * points["sent"].memory_bytes))
        # A session starts its ranks itself.
        count = case.ranks if case.trains else 1
        ways = {form: (partial(_linked, case, own / form, data), count) for form in points}
        turns, teams = take_turns(ways, given.rounds, given.steps, _WARM_UP)
        for form, team in teams.items():
            check_outputs(f"{case.model} {form} on {case.ranks} ranks", team.results[0], wanted)
        found.append(Row(case, points, free, turns))
    return found


def _slower(path: Path, data: Path, folder: Path, *, trains: bool) -> tuple[float, Outputs]:
    """Return how many times slower than first described one rank computes, and its results."""
    folder.mkdir()
    case = Case("", 1, 1e9, trains=trains)
    point = planned(path, case, _described(folder, case, 1.0), "*=R", folder / "plan")
    ways = {_ONE: (partial(_run, case, folder / "plan", data), 1)}
    turns, teams = take_turns(ways, _FIRST, 2, _WARM_UP)
    step_s = statistics.median(turn.step_s for turn in turns[_ONE])
    return step_s / point.time_s, teams[_ONE].results[0]


def _described(folder: Path, case: Case, slower: float) -> Path:
    return write_linked(
        folder,
        case.ranks,
        slower,
        launch_s=5e-6,
        latency_s=case.latency_s,
        bytes_per_s=case.bytes_per_s,
    )


def _linked(case: Case, plan: Path, data: Path, place: Place, gate: Gate) -> Outputs:
    os.environ.update(case.environment)
    return _run(case, plan, data, place, gate)


def _run(case: Case, plan: Path, data: Path, place: Place, gate: Gate) -> Outputs:
    """Return the outputs of the model, or the first losses of its training."""
    if not case.trains:
        return run_by_ranks(place, gate, plan, data)
    losses = trained_by_turns(place, gate, plan, data, _RECIPE.learning_rate)
    return {"losses": np.array(losses[:_LOSSES])}


def table(rows: Sequence[Row]) -> str:
    """Return the figures in Markdown."""
    head = ["model", "ranks", "link", "form", "predicted", "of it sending", "measured"]
    head += ["of shared, predicted", "measured", "memory"]
    lines = [f"| {' | '.join(head)} |", "|---|---:|---|---" + "|---:" * 6 + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(own)} |" for row in rows for own in row.rows())])


def main() -> None:
    """Print a line per form as its model finishes, and the table."""
    given = _parser().parse()
    rows, busy = list[Row](), list[float]()
    for name in given.models or MODELS:
        busy.append(busy_fraction(1.0) or 0.0)
        links = [(ranks, link) for ranks in given.ranks for link in given.links]
        cases = [Case(name, *own, trains=given.train) for own in links]
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            rows += measure(MODELS[name], cases, given, Path(folder))
        print(table(rows), file=sys.stderr, flush=True)
    text = table(rows)
    print(text)
    if given.write:
        note, tokens = busy_note(statistics.fmean(busy)), _SMALL.batch * _SMALL.sequence
        words = _STEP if given.train else _PASS
        section = (words + _TEXT).format(table=text, busy=note, tokens=tokens, **vars(given))
        write_section("speed_trained_experts" if given.train else "speed_experts", section)


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="default all")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--links", nargs="+", type=float, default=[1e8, 2e7], help="bytes per s")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=2, help="or runs, of one turn")
    parser.add_argument("--train", action="store_true", help="training steps, by Adam")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))

"""Time training steps against PyTorch, on ranks of one thread that take turns.

    python bench/speed/training.py                         all models, 2 ranks; minutes
    python bench/speed/training.py gpt2-5M --rounds 3      one of them, quickly
    python bench/speed/training.py --tokens 128 8192       language models on 1 and 2 ranks
    python bench/speed/training.py --write                 the table into docs/benchmarks.md too

The fastest plan is compared with the same model, weights, batch and AdamW in PyTorch with gloo:
DistributedDataParallel, FSDP2, and for transformers tensor parallelism by DTensor. All are
initialized first and then take turns of some steps (`turns`). A ratio is the median over the rounds
of their time over ours: above 1 we are faster. Memory is the peak resident memory of a rank's
process. On one rank PyTorch runs without a wrapper; by tokens it runs with DistributedDataParallel.

The losses of the first steps of all must equal the losses of one process, or the benchmark fails.
Batch normalisations use the statistics of the whole batch here, and the statistics of each rank's
part in PyTorch; the process that PyTorch's losses are compared with does the same.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
from graphs.catalog import Model
from sections import markdown_table, write_section
from train_plans import Recipe, trained
from train_runs import difference, trained_by_turns
from training_data import batch_size, draw
from turns import Team, Turn, Way, busy_note, mean_ratio, ratio_of, take_turns

from speed.models import BATCH_NORMALISED, SPEED_TRAINED, models_of_tokens
from speed.plans import Sizes, planned, speed_parser
from tensoropt.compiler.calibrate.machine_load import busy_fraction
from tensoropt.compiler.pipeline import driver
from tensoropt.runtime.ops.library import vector_lanes

__all__ = ["RECIPE", "Row", "measure", "table", "training_step"]

RECIPE = Recipe("adamw", 1e-4)
_COMPARED = 3
"""Number of first steps with compared losses; rounding differences grow from step to step."""
_AGREE = 1e-3
_OURS, _ALONE, _DDP = "ours", "alone", "DDP"
_WARM_UP = 3
_TEXT = """## Training steps compared with PyTorch

`python bench/speed/training.py --write`: the same model, weights, batch and AdamW on {ranks} ranks
of one thread; PyTorch {version} with gloo, by DistributedDataParallel, FSDP2 and DTensors (of
transformers). PyTorch's time of a step over ours, the median of {rounds} neighbouring turns of
{steps} steps: above 1 we are faster. The ratio of processor times, which other work hardly
prolongs, and the memory (the peak resident memory of a rank's process) are of the fastest of
PyTorch's.

{table}

{busy}"""

_TOKENS = (128, 512, 2048, 8192)
_TOKENS_TEXT = """## Training steps by tokens, compared with PyTorch

`python bench/speed/training.py --tokens --ranks {ranks} --rounds {rounds} --steps {steps} --write`:
steps of two layers of width 256, on 1,024 tokens or one sequence per rank. PyTorch {version} has
`scaled_dot_product_attention`, and on several ranks DistributedDataParallel with gloo; ranks have
one thread, and the processor has vectors of {lanes} floats. The ratios are PyTorch's times over
ours, as in the table above; memory is the peak resident memory of a rank's process. The least ratio
of times is {least:.2f}, of processor times {least_cores:.2f}.

{table}

{busy}"""


@dataclass(frozen=True)
class Row:
    """Turns of all contenders for one model, and the peak memory of their largest processes."""

    model: str
    turns: Mapping[str, Sequence[Turn]]
    peaks: Mapping[str, int]

    def ratio(self, way: str) -> float:
        """Return the time of a contender over ours."""
        return ratio_of(self.turns[way], self.turns[_OURS])

    @property
    def rival(self) -> str:
        """The fastest contender except ours."""
        return min((way for way in self.turns if way != _OURS), key=self.ratio)

    def cores_ratio(self) -> float:
        """Return the processor time of the fastest rival over ours."""
        taken = {w: sum(t.cores_s for t in self.turns[w]) for w in (self.rival, _OURS)}
        return taken[self.rival] / max(taken[_OURS], 1e-3)


def training_step(path: Path) -> driver.ir.Module:
    """Return the training step of the model in a file, ready for a search."""
    return trained(path, RECIPE, "none")


def measure(
    name: str, model: Model, sizes: Sizes, folder: Path, rivals: Collection[str] | None = None
) -> Row:
    """Return the row of a model. Raises ValueError if losses of the first steps differ.

    ``rivals`` selects some of PyTorch's ways, by default all.
    """
    path = model.build(name).save(folder, seed=0)
    data = folder / f"{name}.npz"
    np.savez(data, **draw(path, batch_size(path)))
    plan = planned(training_step, path, "ft", sizes.ranks, folder)
    ours = partial(trained_by_turns, directory=plan, data=data, learning_rate=RECIPE.learning_rate)
    ways = _rivals(model, path, data, sizes.ranks)
    ways = {_OURS: ours, **{way: ways[way] for way in ways if rivals is None or way in rivals}}
    given = {way: (function, sizes.ranks) for way, function in ways.items()}
    turns, teams = take_turns(given, sizes.rounds, sizes.steps, _WARM_UP)
    _check(name, model, teams, partial(_losses_alone, model, path, data))
    return Row(name, turns, {way: team.peak_bytes for way, team in teams.items()})


def _rivals(model: Model, path: Path, data: Path, ranks: int) -> dict[str, Way]:
    from torch_models import parallel

    if ranks == 1:
        kinds = {_ALONE: parallel.train_alone}
    else:
        kinds = {_DDP: parallel.data_parallel, "FSDP2": parallel.fully_sharded}
        if hasattr(model, "heads"):
            kinds["DTensor"] = parallel.tensor_parallel
    given = {"model": model, "path": path, "data": data, "rate": RECIPE.learning_rate}
    return {name: partial(kind, **given) for name, kind in kinds.items()}


def _losses_alone(model: Model, path: Path, data: Path, parts: int) -> list[float]:
    """Return the losses of the first steps in one process of PyTorch."""
    from torch_models.parallel import train_alone

    rate = RECIPE.learning_rate
    way = partial(train_alone, model=model, path=path, data=data, rate=rate, parts=parts)
    _, teams = take_turns({"alone": (way, 1)}, 0, 1, _COMPARED)
    (losses,) = teams["alone"].results
    return losses


def _check(name: str, model: Model, teams: Mapping[str, Team], alone: partial[list[float]]) -> None:
    """Compare the losses of the first steps with one process that normalises as the ranks do."""
    parts = len(teams[_OURS].results) if isinstance(model, BATCH_NORMALISED) else 1
    wanted = {number: alone(parts=number) for number in sorted({1, parts})}
    for way, team in teams.items():
        own = [losses[:_COMPARED] for losses in team.results if losses]
        found = [statistics.fmean(of_ranks) for of_ranks in zip(*own, strict=True)]
        off = difference(found, wanted[1 if way == _OURS else parts])
        if not off <= _AGREE:
            raise ValueError(f"{name}: {way}: losses are {off:.1e} off, expected {_AGREE:g}")


def table(rows: Sequence[Row]) -> str:
    """Return the figures of the models in Markdown, with mean ratios in the last row."""
    others = list(dict.fromkeys(way for row in rows for way in row.turns if way != _OURS))
    head = ["model", "ours, ms", *others, "best", "processors", "memory", "of the best"]
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    lines += [f"| {' | '.join(_cells(row, others))} |" for row in rows]
    ratios = [row.ratio(row.rival) for row in rows], [row.cores_ratio() for row in rows]
    means = [f"{mean_ratio(held):.2f}" for held in ratios]
    blank = [""] * (1 + len(others))
    return "\n".join([*lines, f"| {' | '.join(['geometric mean', *blank, *means, '', ''])} |"])


def _cells(row: Row, others: Sequence[str]) -> list[str]:
    ratios = [f"{row.ratio(way):.2f}" if way in row.turns else "-" for way in others]
    best = [f"{row.ratio(row.rival):.2f}", f"{row.cores_ratio():.2f}"]
    peaks = [f"{row.peaks[way] / 2**20:.0f} MiB" for way in (_OURS, row.rival)]
    ours = 1e3 * statistics.median(turn.step_s for turn in row.turns[_OURS])
    return [row.model, f"{ours:.1f}", *ratios, *best, *peaks]


def _token_rows(tokens: Sequence[int], sizes: Sizes) -> Iterator[tuple[list[str], Row]]:
    """Yield the first cells and the row of each model, on one rank and on ``sizes.ranks``."""
    for ranks, count in itertools.product(sorted({1, sizes.ranks}), tokens):
        for name, model in models_of_tokens(count, ranks).items():
            with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
                placed = replace(sizes, ranks=ranks)
                row = measure(name, model, placed, Path(folder), (_ALONE, _DDP))
            yield [name, f"{count:,}", str(ranks)], row


def _token_table(rows: Sequence[tuple[Sequence[str], Row]]) -> str:
    head = ["model", "tokens", "ranks", "ours, ms", "time", "processors", "memory", "PyTorch's"]
    lines = []
    for first, row in rows:
        _, ours, _, *rest = _cells(row, [row.rival])
        lines.append([*first, ours, *rest])
    ratios = [row.ratio(row.rival) for _, row in rows], [row.cores_ratio() for _, row in rows]
    means = [f"{mean_ratio(held):.2f}" for held in ratios]
    lines.append(["geometric mean", "", "", "", *means, "", ""])
    return markdown_table(head, "|---" + "|---:" * 7 + "|", lines)


def _compare_tokens(tokens: Sequence[int], sizes: Sizes, *, writes: bool) -> None:
    """Print a line per model as it finishes, and the table by tokens."""
    rows, busy = list[tuple[list[str], Row]](), busy_fraction(1.0) or 0.0
    for first, row in _token_rows(tokens, sizes):
        rows.append((first, row))
        print(_token_table(rows[-1:]).splitlines()[2], file=sys.stderr, flush=True)
    print(text := _token_table(rows))
    if writes:
        least = min(row.ratio(row.rival) for _, row in rows)
        least_cores = min(row.cores_ratio() for _, row in rows)
        facts = _facts(text, sizes, busy) | {"least": least, "least_cores": least_cores}
        facts["lanes"] = vector_lanes()
        write_section("speed_training_tokens", _TOKENS_TEXT.format(**facts))


def main() -> None:
    """Print a line per model as it finishes, and the table."""
    parser = speed_parser(__doc__, SPEED_TRAINED)
    parser.add_argument("--tokens", type=int, nargs="*", help="default 128 to 8,192")
    given = parser.parse_args()
    sizes = Sizes(given.ranks, given.rounds, given.steps)
    if given.tokens is not None:
        return _compare_tokens(given.tokens or _TOKENS, sizes, writes=given.write)
    rows, busy = list[Row](), list[float]()
    for name in given.models or SPEED_TRAINED:
        busy.append(busy_fraction(1.0) or 0.0)
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            rows.append(measure(name, SPEED_TRAINED[name], sizes, Path(folder)))
        print(table(rows[-1:]).splitlines()[2], file=sys.stderr, flush=True)
    text = table(rows)
    print(text)
    if given.write:
        facts = _facts(text, sizes, statistics.fmean(busy))
        write_section("speed_training", _TEXT.format(**facts))
    return None


def _facts(text: str, sizes: Sizes, busy: float) -> dict[str, Any]:
    import torch

    facts = {"version": torch.__version__, "busy": busy_note(busy), "table": text}
    return facts | vars(sizes)


if __name__ == "__main__":
    main()

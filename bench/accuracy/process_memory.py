"""Predicted memory of processes, compared with the peak memory of the processes of ranks.

    python bench/accuracy/process_memory.py                         all models, 1, 2 and 4 ranks
    python bench/accuracy/process_memory.py resnet50 gpt --ranks 2  some of them
    python bench/accuracy/process_memory.py --keep FOLDER           save plans and measurements, and
                                                                    reuse them in the next run

Runs the fastest, the leanest and the knee plan of every model, for inference or training, on each
number of ranks, for a few steps. The truth is the peak resident memory (VmHWM of proc(5)) of the
largest rank. The table also has the peaks of its three parts, each at its own time: anonymous
pages, pages of files (code, mapped weights) and shared memory (MPI's). The last line is the mean
absolute error, and the worst predictions below and above the truth.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import zoo
from graphs.runnable import RUN, TRAINED
from search_graphs import training_spec
from sections import write_section
from train_runs import run_plan
from training_data import batch_size, draw

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.search.frontier.points import fastest, knee, leanest
from tensoropt.compiler.support.units import format_bytes
from tensoropt.compiler.training.cut import copy_of
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.inference.jobs import run
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.job import Job

__all__ = ["ZOO", "Peaks", "Row", "main"]

ZOO = ("densenet121", "shufflenet", "squeezenet", "zfnet512")
"""Real networks in addition to the models of bench/graphs; fourteen are run in all."""

RANKS = (1, 2, 4)
_PICKS = {"fastest": fastest, "leanest": leanest, "knee": knee}
_STEPS, _LOOK_S = 3, 0.005
_SEARCH_S = {False: 3.0, True: 30.0}  # for a training step, with all recompute alternatives
_OPTIMIZERS = {"cnn": "momentum", "lstm": "sgd"}
_PARTS = ("RssAnon", "RssFile", "RssShmem")
_PICTURE = Path(__file__).parents[2] / "docs" / "truth-process.svg"
_TEXT = """`python bench/accuracy/process_memory.py --write`: peak resident memory of the largest
process of a rank, in a few steps of the fastest, the leanest and the knee plan. The parts of it
have their peaks at different times."""


@dataclass(frozen=True)
class Peaks:
    """Peak resident bytes of a process, in total and of each part at its own time."""

    process: int
    anonymous: int
    files: int
    shared: int


@dataclass(frozen=True)
class Row:
    """A plan with the measured and the predicted memory of a rank's process."""

    model: str
    ranks: int
    plans: str
    peaks: Peaks
    predicted: int

    @property
    def error(self) -> float:
        """Relative error of the prediction, negative if it is below the truth."""
        return self.predicted / self.peaks.process - 1.0


class Watch:
    """Samples the memory of this process's ranks from a thread, inside a with statement."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def peaks(self) -> Peaks:
        """Return the peaks over all ranks."""
        return Peaks(*(self._most[name] for name in ("VmHWM", *_PARTS)))

    def _look(self) -> None:
        while not self._end.wait(_LOOK_S):
            for process in _ranks():
                for name, size in _sizes(process).items():
                    self._most[name] = max(self._most.get(name, 0), size)


def _ranks() -> Iterator[Path]:
    """Yield the folders in /proc of the ranks that this process has started."""
    for task in Path("/proc/self/task").iterdir():
        for number in _text(task / "children").split():
            process = Path("/proc") / number
            if "tensoropt.runtime.launch.rank" in _text(process / "cmdline"):
                yield process


def _sizes(process: Path) -> dict[str, int]:
    """Return the measured sizes in the status of a process, in bytes."""
    fields = (line.split() for line in _text(process / "status").splitlines())
    wanted = ("VmHWM", *_PARTS)
    return {f[0][:-1]: int(f[1]) << 10 for f in fields if f and f[0][:-1] in wanted}


def _text(path: Path) -> str:
    """Return the text of a file in /proc, empty if its process has ended."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


@dataclass(frozen=True)
class Subject:
    """A model file, to run or to train."""

    name: str
    path: Path
    dims: Mapping[str, int]
    trains: bool

    def plans(self, ranks: int, folder: Path) -> dict[Path, str]:
        """Return the folders of the plans on ``ranks`` ranks, with their names.

        They are created in ``folder`` unless it has them.
        """
        index = folder / f"{self.name}-{ranks}.json"
        if not index.is_file():
            index.write_text(json.dumps(self._make_plans(ranks, folder)))
        return {folder / name: picks for name, picks in json.loads(index.read_text()).items()}

    def _make_plans(self, ranks: int, folder: Path) -> dict[str, str]:
        module, request = self._module(), Request(ranks, search_time=_SEARCH_S[self.trains])
        result = driver.frontier(module, request)
        picked: dict[int, list[str]] = {}
        for name, pick in _PICKS.items():
            picked.setdefault(pick(result.points).index, []).append(name)
        made = {}
        for index, names in picked.items():
            point = next(point for point in result.points if point.index == index)
            own, directory = copy_of(module), f"{self.name}-{ranks}-{index}"
            driver.settle(own, point, request, result)
            driver.compile_plan(own, self.path, folder / directory)
            made[directory] = ", ".join(names)
        return made

    def _module(self) -> driver.ir.Module:
        module = driver.load(self.path, self.dims, training=self.trains)
        if not self.trains:
            driver.advance(module, "rules")
            return module
        driver.run_phase(module, "prepare", training=True)
        spec = training_spec(_OPTIMIZERS.get(self.name.partition(" ")[0], "adamw"))
        driver.train(module, BuildTrainingStepPass.from_spec(spec, "auto"))
        return module

    def _job(self, plan: Path) -> Job:
        # Integers index tables, and there are two kinds of segments.
        return Job((str(plan),), runs=_STEPS, threads=1, dims=dict(self.dims), int_range=(0, 2))

    def measure(self, plan: Path) -> Peaks:
        """Return the memory of a plan's ranks in a few steps, measured unless it is saved."""
        found = plan.with_suffix(".taken")
        if not found.is_file():
            found.write_text(json.dumps(asdict(self._run_steps(plan))))
        return Peaks(**json.loads(found.read_text()))

    def _run_steps(self, plan: Path) -> Peaks:
        if not self.trains:
            with Watch() as watch:
                [result] = run(self._job(plan))
            if result.error is not None:
                raise SystemExit(f"{plan}: {result.error}")
            return watch.peaks()
        data = self.path.with_suffix(".npz")
        if not data.is_file():
            np.savez(data, **draw(self.path, batch_size(self.path)))
        with Watch() as watch:
            run_plan(plan, data, _STEPS, 1e-4, threads=1)
        return watch.peaks()


def subjects(folder: Path, names: Sequence[str]) -> Iterator[Subject]:
    """Yield the models of these names or all models, created in ``folder`` unless it has them."""
    known = [*RUN, *ZOO, *(f"{name} training" for name in TRAINED)]
    for name in known:
        if not names or name in names or name.partition(" ")[0] in names:
            yield Subject(name, _path(name, folder), {}, name.endswith(" training"))
    yield from (Subject(Path(n).stem, Path(n), {}, False) for n in names if n.endswith(".onnx"))


def _path(name: str, folder: Path) -> Path:
    path = folder / f"{name.replace(' ', '-')}.onnx"
    if path.is_file():
        return path
    if name in ZOO:
        return zoo.provide(name, folder)
    short, _, trained = name.partition(" ")
    return (TRAINED if trained else RUN)[short].build(path.stem).save(folder, seed=0)


def rows(folder: Path, names: Sequence[str], counts: Sequence[int]) -> Iterator[Row]:
    """Yield measurements plan by plan; another process creates the next plans at the same time."""
    wanted = [(subject, ranks) for subject in subjects(folder, names) for ranks in counts]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as planner:
        made = [planner.submit(subject.plans, ranks, folder) for subject, ranks in wanted]
        try:
            for (subject, ranks), plans in zip(wanted, made, strict=True):
                for plan, picks in plans.result().items():
                    predicted = json.loads((plan / "plan.json").read_text())["predicted"]
                    size = predicted.get("process_bytes", predicted["memory_bytes"])
                    yield Row(subject.name, ranks, picks, subject.measure(plan), size)
        finally:
            planner.shutdown(cancel_futures=True)


_HEADS = ("model", "ranks", "plan", "process", "anonymous", "files", "shared", "predicted", "error")


def cells(row: Row) -> list[str]:
    """Return the columns of a row as text."""
    sizes = (row.peaks.process, row.peaks.anonymous, row.peaks.files, row.peaks.shared)
    texts = [format_bytes(size) for size in (*sizes, row.predicted)]
    return [row.model, str(row.ranks), row.plans, *texts, f"{row.error:+.1%}"]


def summary(found: Sequence[Row]) -> str:
    """Return the mean absolute error, and the worst in either direction."""
    errors = {row.error: f"{row.model}, {row.ranks} ranks, {row.plans}" for row in found}
    mean = sum(map(abs, (row.error for row in found))) / len(found)
    low, high = min(errors), max(errors)
    return (
        f"{len(found)} plans: mean absolute error {mean:.1%}, "
        f"lowest {low:+.1%} ({errors[low]}), highest {high:+.1%} ({errors[high]})"
    )


def markdown(found: Sequence[Row]) -> str:
    """Return the table and its summary for docs/benchmarks.md."""
    lines = [f"| {' | '.join(_HEADS)} |", "|---|---:|---|" + "---:|" * (len(_HEADS) - 3)]
    lines += [f"| {' | '.join(cells(row))} |" for row in found]
    picture = "![Predicted against measured memory of processes](truth-process.svg)"
    return "\n".join(
        ["## Memory of processes", "", _TEXT, "", *lines, "", f"{summary(found)}.", "", picture]
    )


def drawn(found: Sequence[Row], path: Path) -> None:
    """Draw predicted against measured memory, with a mark per plan."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlabel="measured, MiB", ylabel="predicted, MiB")
    axes.axline((100, 100), (200, 200), color="grey", linewidth=0.8)
    for trains, marker in ((False, "o"), (True, "^")):
        own = [row for row in found if row.model.endswith("training") is trains]
        taken = [row.peaks.process / (1 << 20) for row in own]
        label = "a training step" if trains else "a run"
        predicted = [row.predicted / (1 << 20) for row in own]
        axes.plot(taken, predicted, marker, markersize=4, label=label)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print a line per plan and the summary; ``--write`` puts both into docs/benchmarks.md."""
    given = _parser().parse()
    line = "{:20} {:>5} {:24}" + " {:>10}" * 5 + " {:>7}"
    print(line.format(*_HEADS))
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = []
        for row in rows(folder, given.models, given.ranks):
            found.append(row)
            print(line.format(*cells(row)), flush=True)
    print(summary(found))
    if given.write:
        drawn(found, _PICTURE)
        write_section("truth process", markdown(found))


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", help="names, or .onnx files; default all but files")
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="save models, plans and measurements"
    )
    parser.add_argument("--write", action="store_true", help="to docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))

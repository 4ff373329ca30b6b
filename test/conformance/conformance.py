"""Prove every strategy that the sharding rules offer on the standard's own tests, on MPI ranks.

For each test of the installed onnx package that stock ONNX Runtime passes: import and export give
the same results on one device, and on meshes 2, 4 and 2x2 every strategy of every operator gives
the expected outputs on every rank. The whole run writes docs/operators.md. Ends in
``N passed, M failed``; exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from conformance_rank import Job, Verdict
from node_tests import NodeTest, standard_tests
from operator_table import MESHES, TARGET, Table

__all__ = ["main", "prove"]

_SILENCE_S = 180.0  # without a sign of life
_SILENCE_AFTER_ERROR_S = 5.0  # then the other ranks wait for the one that has failed
_RESTARTS = 40
_STRIDE = 24
_MEMORY = "/dev/shm"  # where there is one: a hundred thousand small files are written

Say = Callable[[int], None]


def prove(tests: Sequence[NodeTest], say: Say = lambda done: None) -> list[Verdict]:
    """Run ``tests`` on every mesh; return a verdict per test and number of ranks.

    ``say`` is told how many (test, number of ranks) are done.
    """
    found: list[Verdict] = []
    for ranks in sorted({mesh.size for mesh in MESHES}):
        shapes = tuple(mesh.shape for mesh in MESHES if mesh.size == ranks)
        job = Job(_ordered(tests), shapes, round_trip=not found)
        done = len(found)
        found += _run(job, ranks, lambda count, done=done: say(done + count))
    return found


def _ordered(tests: Sequence[NodeTest]) -> list[NodeTest]:
    """Put models of one operator first, and similar ones of several far from one another.

    What was tried of an operator before is not tried again in a model of several.
    """
    single = [test for test in tests if len(test.operators) == 1]
    several = [test for test in tests if len(test.operators) != 1]
    return single + [test for start in range(_STRIDE) for test in several[start::_STRIDE]]


def _run(job: Job, ranks: int, say: Say) -> list[Verdict]:
    """Run a job, again without the plan in which its ranks hang or crash, until all is done."""
    memory = _MEMORY if Path(_MEMORY).is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tensoropt-conformance-", dir=memory) as name:
        folder, skipped = Path(name), set[tuple[str, str]]()
        for turn in range(_RESTARTS):
            done = _verdicts(folder)
            left = [test for test in job.tests if test.name not in {v.test for v in done}]
            if not left:
                return done
            start = folder / str(turn)
            start.mkdir()
            own = Job(left, job.meshes, frozenset(skipped), job.round_trip)
            (start / "tests").write_bytes(pickle.dumps(own))
            _watch(_launch(start, ranks), folder, start, say)
            skipped |= _running(start)
        raise RuntimeError(f"the ranks ended {_RESTARTS} times before all tests were done")


def _launch(folder: Path, ranks: int) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).with_name("mpiexec")), "-launcher", "fork"]
    program = Path(__file__).with_name("conformance_rank.py")
    command += ["-n", str(ranks), sys.executable, str(program), str(folder)]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def _watch(process: subprocess.Popen[bytes], folder: Path, start: Path, say: Say) -> None:
    """Wait for the ranks to end; end them where they give no sign of life."""
    try:
        while process.poll() is None:
            time.sleep(0.1)
            say(len(_verdicts(folder)))
            last_s, name = _last_sign(start)
            limit_s = _SILENCE_AFTER_ERROR_S if name.startswith("error") else _SILENCE_S
            if time.time() - last_s > limit_s:
                return
    finally:
        process.terminate()
        process.wait()


def _last_sign(start: Path) -> tuple[float, str]:
    """Return when something was last written, in seconds since the epoch, and its name."""
    signs = []
    for path in start.iterdir():
        with suppress(FileNotFoundError):  # ranks remove folders meanwhile
            signs.append((path.stat().st_mtime, path.name))
    return max(signs)


def _verdicts(folder: Path) -> list[Verdict]:
    lines = [line for path in folder.glob("*/results") for line in path.read_text().splitlines()]
    return [Verdict(**json.loads(line)) for line in lines]


def _running(start: Path) -> set[tuple[str, str]]:
    """Return what the ranks were running when they ended."""
    texts = [path.read_text() for path in start.glob("now*")]
    found = {tuple(text.split("\t", 1)) for text in texts if "\t" in text}
    return {(test, key) for test, key in found}


def main() -> int:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # ends the ranks
    arguments = _parser().parse_args()
    tests = _selected(standard_tests(), arguments)
    with _progress(2 * len(tests)) as say:
        verdicts = prove(tests, say)
    table = Table.from_tests(tests, verdicts)
    print(table.text())
    if not arguments.only and arguments.every == 1:
        TARGET.write_text(table.page(), encoding="utf-8")
    failures = [(v.test, *failure) for v in verdicts for failure in v.failures.items()]
    for test, key, error in failures:
        print(f"FAILED {test}: {key}: {error}")
    print(f"{sum(v.passed for v in verdicts)} passed, {len(failures)} failed")
    return 1 if failures else 0


def _selected(tests: Sequence[NodeTest], arguments: argparse.Namespace) -> list[NodeTest]:
    names = set(filter(None, arguments.only.split(",")))
    kept = [test for test in tests if not names or names & set(test.operators)]
    return kept[:: arguments.every]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="operators, as in Conv,ai.onnx.ml.Binarizer")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one test in N")
    return parser


@contextmanager
def _progress(total: int) -> Iterator[Say]:
    """Show a bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("tests", total=total)
        yield lambda done: bar.update(task, completed=done)


if __name__ == "__main__":
    sys.exit(main())

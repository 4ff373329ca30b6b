"""Use damaged files of plans, families and checkpoints: the same numbers or one line of error.

Each case flips a bit, truncates, zeroes or repeats a piece of one file, or puts another file in its
place, and then runs the plan, or trains from the family or the checkpoint. Other numbers than those
of the whole files, a traceback, more than one line, or no end are failures. Ends in ``N cases, M
refused, K the same, F failed``; exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import numpy as np
from made_families import FLAGS, perceptron, write

from tensoropt.compiler.cli.opt import main as plan_of

__all__ = ["Outcome", "Subject", "damage", "made", "run_all"]

_LIMIT_S = 120
_STEPS = 3


@dataclass(frozen=True)
class Subject:
    """A folder with files to damage, and the command that uses them; ``read`` gives its numbers."""

    name: str
    folder: Path
    files: tuple[str, ...]
    command: Callable[[Path, Path], list[str | Path]]
    read: Callable[[Path], list[float]]


@dataclass(frozen=True)
class Outcome:
    """A case: ``kind`` is refused, same, or failed, with the reason in ``text``."""

    what: str
    kind: str
    text: str = ""


def made(folder: Path) -> list[Subject]:
    """Return a plan for inference, a family and a checkpoint of it, in ``folder``."""
    model = perceptron(folder)
    assert (
        plan_of([str(model), "--devices", "2", "--pick", "leanest", "-o", str(folder / "p")]) == 0
    )
    family = folder / "family"
    write(model, "--loss", "mse:y,t", *FLAGS, "--devices", "2", "-o", family)
    draw = np.random.default_rng(0)
    x, t = draw.standard_normal((1100, 64)), draw.standard_normal((1100, 32))
    np.savez(folder / "data.npz", x=x.astype(np.float32), t=t.astype(np.float32))
    job = folder / "saved"
    start = ("--resume", family / "initial.safetensors", "--checkpoint", job)
    subprocess.run(_train(folder, family / "1", *start), check=True, capture_output=True)
    (checkpoint,) = job.iterdir()
    plan = folder / "p"

    def infer(place: Path, out: Path) -> list[str | Path]:
        return [*_RUN, place, "--outputs", out]

    def train(place: Path, out: Path) -> list[str | Path]:
        resume = ("--resume", place / "initial.safetensors", "--log", out)
        return _train(folder, place / "2", *resume)

    def resume(place: Path, out: Path) -> list[str | Path]:
        return _train(folder, family / "2", "--resume", place / checkpoint.name, "--log", out)

    return [
        Subject("plan", plan, _files(plan), infer, _outputs),
        Subject("family", family, _files(family, "2/", "initial"), train, _losses),
        Subject("checkpoint", job, (checkpoint.name,), resume, _losses),
    ]


_RUN = (sys.executable, "-m", "tensoropt.runtime.cli.run")


def _train(folder: Path, plan: Path, *flags: str | Path) -> list[str | Path]:
    data = ("--train", "--data", folder / "data.npz", "--steps", str(_STEPS), "--threads", "1")
    return [*_RUN, plan, *data, *flags]


def _files(folder: Path, *starts: str) -> tuple[str, ...]:
    names = [p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_file()]
    return tuple(name for name in names if not starts or name.startswith(starts))


def _losses(log: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def _outputs(path: Path) -> list[float]:
    with np.load(path) as arrays:
        return [float(value) for name in arrays.files for value in arrays[name].ravel()]


def damage(data: bytes, other: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return what was done to a file, and its bytes then; ``other`` are those of another file."""
    found, start = bytearray(data), rng.randrange(max(len(data), 1))
    length = rng.randrange(1, 4097)
    kind = rng.choice(["flip", "flip", "cut", "zero", "repeat", "swap", "empty"])
    if kind == "flip" and found:
        found[start] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del found[start:]
    elif kind == "zero":
        found[start : start + length] = bytes(len(found[start : start + length]))
    elif kind == "repeat":
        found[start:start] = found[start : start + length]
    elif kind == "swap":
        found = bytearray(other)
    elif kind == "empty":
        found.clear()
    return f"{kind} at {start}", bytes(found)


def run_all(folder: Path, count: int, seed: int, workers: int = 2) -> list[Outcome]:
    """Return the outcomes of ``count`` random cases on files that are made in ``folder``."""
    subjects = made(folder)
    expected = {
        each.name: _numbers(each, each.folder, folder / f"out-{each.name}") for each in subjects
    }
    rng = random.Random(seed)
    cases = [(rng.choice(subjects), rng.getrandbits(32), number) for number in range(count)]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda case: _case(folder, expected, *case), cases))


def _numbers(subject: Subject, place: Path, out: Path) -> list[float]:
    command = list(map(str, subject.command(place, out)))
    subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_S)
    return subject.read(out)


def _case(
    folder: Path, expected: dict[str, list[float]], subject: Subject, seed: int, number: int
) -> Outcome:
    rng = random.Random(seed)
    place, out = folder / f"case{number}", folder / f"out{number}"
    shutil.copytree(subject.folder, place)
    name, other = rng.choice(subject.files), rng.choice(subject.files)
    before = (place / name).read_bytes()
    how, after = damage(before, (subject.folder / other).read_bytes(), rng)
    what = f"{subject.name} {name}: {how} (seed {seed})"
    (place / name).write_bytes(after)
    try:
        command = list(map(str, subject.command(place, out)))
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return Outcome(what, "failed", f"no end within {_LIMIT_S} s")
    finally:
        shutil.rmtree(place)
    return _judged(what, done, subject, out, expected[subject.name])


def _judged(
    what: str,
    done: subprocess.CompletedProcess[str],
    subject: Subject,
    out: Path,
    expected: Sequence[float],
) -> Outcome:
    lines = done.stderr.splitlines()
    if done.returncode == 1 and len(lines) == 1 and lines[0].startswith("error: "):
        return Outcome(what, "refused", lines[0])
    if done.returncode:
        return Outcome(what, "failed", f"status {done.returncode}: {done.stderr[-300:]}")
    found = subject.read(out)
    if not np.array_equal(found, expected):
        return Outcome(what, "failed", f"other numbers: {found[:3]}, expected {expected[:3]}")
    return Outcome(what, "same")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases and print those that failed; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run_all(Path(folder), args.count, args.seed)
    for outcome in outcomes:
        if outcome.kind == "failed":
            print(f"{outcome.what}: {outcome.text}")
    kinds = [outcome.kind for outcome in outcomes]
    counted = f"{kinds.count('refused')} refused, {kinds.count('same')} the same"
    print(f"{len(kinds)} cases, {counted}, {kinds.count('failed')} failed")
    return 1 if "failed" in kinds else 0


if __name__ == "__main__":
    sys.exit(main())

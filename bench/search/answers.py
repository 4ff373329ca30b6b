"""Results and times of default searches, where only the number of devices is given.

    python bench/search/answers.py MODEL.onnx ...             the frontier of each on 4 devices
    python bench/search/answers.py MODELS/ --devices 8 64     of every .onnx file below a folder
    python bench/search/answers.py MODEL.onnx --flags FLAGS.json --search-time 8
    python bench/search/answers.py MODELS/ --reserve          on half a core as well

Runs `tensoropt-opt MODEL --pareto --devices N` for each and prints a table: seconds from start to
end (elapsed, and of the processor), points, the bound that was reached, and the meshes that were
left out. FLAGS.json maps the ends of paths to more flags, such as "--dim batch=4". The last line
counts answers and names the slowest. Half a core is one core that a busy loop shares.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tensoropt.runtime.support.flags import Parser, run_command

_COMMAND = (sys.executable, "-c", "from tensoropt.compiler.cli.entry import opt; opt()")
_HEADER = f"{'model':40}  {'devices':>7}  {'wall s':>6}  {'cpu s':>6}  {'points':>6}  bound"


@dataclass(frozen=True)
class Answer:
    """Output of a command; ``refused`` is its error, if it failed."""

    wall_s: float
    cpu_s: float
    points: int = 0
    bound: str = ""
    refused: str = ""


def models(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files among ``paths``, and the .onnx files below its folders."""
    for path in paths:
        yield from sorted(path.rglob("*.onnx")) if path.is_dir() else [path]


@contextmanager
def half_a_core() -> Iterator[None]:
    """Keep this process and its children on one core, which a busy loop shares."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()
        os.sched_setaffinity(0, cores)


def answer(path: Path, devices: int, more: Sequence[str], limit_s: float) -> Answer:
    """Run the command on one model, for at most ``limit_s``."""
    flags = ["--pareto", "--devices", str(devices), "--format", "json", *more]
    before, started = _cpu_s(), time.monotonic()
    try:
        done = subprocess.run(
            [*_COMMAND, str(path), *flags], capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return Answer(limit_s, _cpu_s() - before, refused=f"no answer in {limit_s:g} s")
    spent = (time.monotonic() - started, _cpu_s() - before)
    if done.returncode:
        return Answer(*spent, refused=(done.stderr.splitlines() or ["died"])[-1])
    found = json.loads(done.stdout)
    return Answer(*spent, len(found["points"]), _bound(found))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _bound(found: Mapping[str, object]) -> str:
    epsilon, left_out = found["epsilon"], found["left_out"]
    bound = "none" if epsilon is None else f"{epsilon:.2%}" if epsilon else "exact"
    bound += "" if found["axes"] is None else f" of up to {found['axes']} axes"
    assert isinstance(left_out, list)
    names = ["x".join(map(str, left["mesh"])) for left in left_out]
    return bound + (f", without {', '.join(names)}" if names else "")


def _flags_of(path: Path, known: Mapping[str, str]) -> list[str]:
    return next((shlex.split(text) for end, text in known.items() if str(path).endswith(end)), [])


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--devices", nargs="+", type=int, default=[4])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--flags", type=Path)
    parser.add_argument("--search-time")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="timeout of each model in seconds"
    )
    parser.add_argument("--reserve", action="store_true", help="on half a core as well")
    given = parser.parse()
    known = {} if given.flags is None else json.loads(given.flags.read_text())
    more = ["--device", given.device]
    more += [] if given.search_time is None else ["--search-time", given.search_time]
    print(_HEADER, flush=True)
    answers: list[tuple[float, str]] = []
    refused = 0
    speeds = [nullcontext, half_a_core] if given.reserve else [nullcontext]
    cases = [(p, n, s) for p in models(given.paths) for n in given.devices for s in speeds]
    for path, devices, speed in cases:
        with speed():
            got = answer(path, devices, [*more, *_flags_of(path, known)], given.limit)
        figures = f"{got.wall_s:6.1f}  {got.cpu_s:6.1f}  {got.points:6}"
        name = "/".join(path.parts[-2:]) + (" (half a core)" if speed is half_a_core else "")
        print(f"{name[-40:]:40}  {devices:7}  {figures}  {got.refused or got.bound}", flush=True)
        refused += bool(got.refused)
        answers.append((got.wall_s, f"{name} on {devices}"))
    wall_s, slowest = max(answers, default=(0.0, "nothing"))
    print(f"{len(answers) - refused} answers, {refused} refused; slowest {wall_s:.1f} s: {slowest}")


if __name__ == "__main__":
    sys.exit(run_command(main))

"""Ablation of the search: every acceleration and heuristic off, one at a time.

    python bench/search/ablation.py                                   all switches (four hours)
    python bench/search/ablation.py --switches fill --cases bert      some
    python bench/search/ablation.py --seconds 10                      with more time per case

A switch is a change of the source (``bench/search/switches.py``), applied to a copy of the tree:
the product has no options for it. Every version searches the cases of ``bench/search/ablated.py``,
each in the same processor time. A row shows the search without one refinement, next to the whole
search: the geometric mean of the ratios of the times to the answer, and the largest; the mean
change of the bound in percentage points, and the largest; the largest changes of the fastest and of
the leanest plan. The rows `nothing`, of unchanged trees, are the noise.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.catalog import MODELS
from graphs.trained import TRAINED
from search_graphs import training_spec

from search.ablated import CASES, Case, Found
from search.switches import PROCESSOR_CLOCK, SWITCHES, Edit, Switch
from tensoropt.compiler.pipeline import driver
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.support.flags import Parser, run_command

ROOT = Path(__file__).resolve().parents[2]
_ROOMS = ("tensoropt", "compiler", "dialects", "passes", "runtime", "bench", "CMakeLists.txt")
_NATIVE = {
    "_walk": Path("compiler/program/walk"),
    "_engine": Path("compiler/search/engine"),
    "_schedules": Path("compiler/stages/schedules"),
}
"""Folders of the compiled modules."""
_RUN = """\
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "ScikitBuild" not in type(f).__name__]
sys.path[:0] = [{tree!r}, {tree!r} + "/bench"]
from search.ablated import main
main()
"""
Results = Mapping[str, Found]


def apply(edits: Iterable[Edit], tree: Path) -> None:
    """Change the files of ``tree``; raises SystemExit unless each text occurs exactly once."""
    for edit in edits:
        path = tree / edit.file
        text = path.read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise SystemExit(f"{edit.file}: expected once: {edit.old!r}")
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def prepare(case: Case, path: Path) -> None:
    """Write the module of a case with its rules."""
    known: Mapping[str, Any] = {**MODELS, **TRAINED}
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        builder = replace(known[case.model], **case.sizes).build(case.model)
        module = driver.load(builder.save(Path(folder)), {}, training=case.trains)
        driver.run_phase(module, "prepare", training=case.trains)
    if case.trains:
        driver.train(module, BuildTrainingStepPass.from_spec(training_spec()))
    else:
        driver.advance(module, "rules")
    path.write_text(module.operation.get_asm(enable_debug_info=True), encoding="utf-8")


class Trees:
    """Copies of the source in a folder: the tree as it was at the start, and changed ones."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.whole = folder, folder / "whole"
        self.whole.mkdir()
        for room in _ROOMS:
            source, target = ROOT / room, self.whole / room
            if source.is_file():
                shutil.copy(source, target)
            else:
                left_out = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, target, symlinks=True, ignore=left_out)
        apply([PROCESSOR_CLOCK], self.whole)
        self.build(self.whole)

    def build(self, tree: Path) -> None:
        """Compile the modules of a tree, only files that differ from the last compiled tree."""
        source, target = self.folder / "native", self.folder / "build"
        if not source.exists():
            shutil.copytree(self.whole, source, symlinks=True)
            flags = ["-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={sys.executable}"]
            _run(["cmake", "-G", "Ninja", "-S", str(source), "-B", str(target), *flags])
        for folder in _NATIVE.values():
            for path in (tree / folder).glob("*.[ch]pp"):
                old = source / folder / path.name
                if old.read_bytes() != path.read_bytes():
                    shutil.copyfile(path, old)
        _run(["cmake", "--build", str(target), "--target", *_NATIVE])
        for name, folder in _NATIVE.items():
            (built,) = (target / folder).glob(f"{name}*.so")
            shutil.copy(built, tree / folder.parent / built.name)

    def changed(self, switch: Switch) -> Path:
        """Return a tree with the edits of a switch."""
        tree = self.folder / "changed"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(self.whole, tree, symlinks=True)
        apply(switch.edits, tree)
        if any(edit.file.endswith("pp") for edit in switch.edits):
            self.build(tree)
        return tree


def _run(command: Sequence[str]) -> None:
    # Tools such as ninja are in the folder of the interpreter.
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=tools)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def measure(tree: Path, cases: Path, names: Sequence[str], seconds: float) -> Results:
    """Return the answers of one version of the source."""
    code = _RUN.format(tree=str(tree))
    command = [sys.executable, "-c", code, str(cases), str(seconds), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    rows = map(json.loads, done.stdout.splitlines())
    found = dict[str, Found]()
    for row in rows:
        if "failed" in row:
            print(f"    {row['case']}: {row['failed']}", flush=True)
        else:
            found[row["case"]] = Found(**row)
    return found


def compare(old: Results, new: Results) -> str:
    """Return the columns of a row: ``new`` without a refinement, ``old`` with it."""
    names = sorted(old.keys() & new.keys())
    if not names:
        return "no answer"
    ratios = {name: new[name].cpu_s / old[name].cpu_s for name in names}
    more = {name: 100 * (new[name].bound - old[name].bound) for name in names}
    slower = {name: 100 * (new[name].fastest_s / old[name].fastest_s - 1) for name in names}
    larger = {name: 100 * (new[name].leanest_bytes / old[name].leanest_bytes - 1) for name in names}
    mean = math.exp(sum(map(math.log, ratios.values())) / len(names))
    columns = [
        f"{mean:5.2f}  {_most(ratios, '.2f'):22}",
        f"{sum(more.values()) / len(more):+7.2f}  {_most(more, '+.2f'):24}",
        f"{_most(slower, '+.2f'):22}  {_most(larger, '+.2f')}",
    ]
    return "  ".join(columns)


def _most(changes: Mapping[str, float], style: str) -> str:
    case = max(changes, key=changes.__getitem__)
    return f"{changes[case]:{style}} {case}"


def rows(trees: Trees, cases: Path, given: argparse.Namespace) -> Iterator[str]:
    """Yield a row per switch; the unchanged tree is measured again before each: machines vary."""
    heads = "mean  largest ratio           bound  largest, points           fastest, %"
    yield f"{'without':24}  {heads:78}  leanest, %"
    for name in (*given.switches, "nothing"):
        tree = trees.changed(SWITCHES[name])
        old, new = (measure(one, cases, given.cases, given.seconds) for one in (trees.whole, tree))
        yield f"{name:24}  {compare(old, new)}"


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--switches", nargs="+", choices=SWITCHES, default=list(SWITCHES))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument(
        "--seconds", type=float, default=2.5, help="of the processor, per case (2.5)"
    )
    given = parser.parse()
    with tempfile.TemporaryDirectory(prefix="tensoropt-ablation-") as folder:
        trees, cases = Trees(Path(folder)), Path(folder) / "cases"
        cases.mkdir()
        for name in given.cases:
            prepare(CASES[name], cases / f"{name}.mlir")
        for row in rows(trees, cases, given):
            print(row, flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))

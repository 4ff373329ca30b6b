"""Mutation check of the quick tier: `python tools/guard.py FOLDER [--tier quick|all]`.

Each ``*.patch`` in FOLDER brings back a bug that was fixed. Its first lines may contain ``Tests:``
and the tests to run, separated by spaces: files or folders for pytest, ``.mlir`` files for lit, and
``cpp`` for the unit tests of the C++. Without that line, all of pytest and lit run.

The patches are applied one at a time, and a test must fail for each. Prints one line per patch: the
first test that fails, `missed`, or `stale` if the patch no longer applies. Exits with 1 unless
every patch that applies is caught.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_TESTS = re.compile(r"^Tests: (.+)$", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR|FAIL:|\[  FAILED  \]) (.+?)(?: - .*)?$", re.MULTILINE)
_LIMIT_S = 900  # a bug may make a test hang, which counts as caught


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@contextmanager
def _applied(patch: Path) -> Iterator[bool]:
    """Apply a patch to the working tree; yields False if it does not apply."""
    if _git("apply", str(patch)).returncode:
        yield False
        return
    try:
        _build(patch)
        yield True
    finally:
        _git("apply", "--reverse", str(patch))
        _build(patch)


def _build(patch: Path) -> None:
    """Build native code if the patch changes any."""
    if re.search(r"^\+\+\+ b/.*\.[ch]pp$", patch.read_text(encoding="utf-8"), re.MULTILINE):
        subprocess.run(["make", "build"], cwd=ROOT, capture_output=True, check=True)


def _failure(command: Sequence[str]) -> str | None:
    """Return the first test that fails, or None; exit if the command itself fails."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return f"no result within {_LIMIT_S} s"
    if done.returncode in (0, 5):  # 5: pytest selected no test
        return None
    found = _FAILED.search(done.stdout)
    if found is not None:
        return found[1]
    if done.returncode in (2, 4):  # interrupted, or wrong arguments
        sys.exit(f"guard: {command[0]} failed: {(done.stderr or done.stdout)[-500:]}")
    return f"{Path(command[0]).name} died with status {done.returncode}"


def _caught_by(patch: Path, tier: str) -> str | None:
    """Return the first failing test with a patch applied, or None."""
    match = _TESTS.search(patch.read_text(encoding="utf-8"))
    tests = ["test"] if match is None else match[1].split()
    lit = [test for test in tests if match is None or test.endswith(".mlir")]
    python = [test for test in tests if test != "cpp" and not test.endswith(".mlir")]
    pytest = ["pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "--tier", tier]
    commands = [
        ["ctest", "--test-dir", "build/native", "--output-on-failure"] if "cpp" in tests else [],
        ["lit", "-q", *lit] if lit else [],
        [*pytest, *python] if python else [],
    ]
    tools = Path(sys.executable).parent
    found = (_failure([str(tools / name), *rest]) for name, *rest in filter(None, commands))
    return next((test for test in found if test is not None), None)


def main() -> int:
    """Check all patches of a folder; return the exit status."""
    parser = argparse.ArgumentParser(description="Check that tests catch the bugs of a folder.")
    parser.add_argument("folder", type=Path, help="folder of patches")
    parser.add_argument("--tier", choices=["quick", "all"], default="quick")
    arguments = parser.parse_args()
    if _git("status", "--porcelain", "--untracked-files=no").stdout:
        sys.exit("guard: expected a clean working tree, got: changes; commit them first")
    missed = 0
    for patch in sorted(arguments.folder.resolve().glob("*.patch")):
        with _applied(patch) as applies:
            test = _caught_by(patch, arguments.tier) if applies else "stale"
        missed += test is None
        print(f"{patch.stem}: {test or 'missed'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

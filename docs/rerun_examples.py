"""Run the examples of the documentation again whose output does not depend on the machine's speed.

    python docs/rerun_examples.py           say which lines are out of date; exit status 1 if any is
    python docs/rerun_examples.py --write   put what the commands print in their place

These are the commands of tensoropt-opt on the demo's ResNet-50, in the README and in docs/, that
print a report or an error: their figures are predictions. What tensoropt-run measures is not run.
The examples in Python, training included, are run as doctests; those are to be corrected by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import doctest
import functools
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from zoo import cnn_path, randomise

Output = Callable[[str], Sequence[str] | None]
"""What a command prints."""

_ROOT = Path(__file__).parents[1]
PYTHON = _ROOT / "docs" / "python.md"
PAGES = (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))
_EXAMPLE = re.compile(
    r"^    \$ (tensoropt-opt demo/(?:[^\n]*\\\n)*[^\n]*[^\\\n])\n((?:    (?!\$)[^\n]+\n)+)",
    re.MULTILINE,
)


def again(text: str, output: Output) -> str:
    """Return ``text`` with the ``output`` of every example's command, where there is one."""

    def example(match: re.Match[str]) -> str:
        lines = output(match[1])
        if lines is None:
            return match[0]
        return "".join(f"    {line}\n" for line in (f"$ {match[1]}", *lines))

    return _EXAMPLE.sub(example, text)


def in_folder(folder: Path) -> Output:
    """Return what runs a command in ``folder``."""

    def output(command: str) -> list[str]:
        program, *words = shlex.split(command.replace("\\\n", " "))
        run = [Path(sys.executable).parent / program, *words]
        done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
        return (done.stdout or done.stderr).splitlines()

    return output


def rerun(page: Path, output: Output, write: bool) -> bool:
    """Print what differs in ``page``, correct it if ``write``; say whether anything differed."""
    before = page.read_text(encoding="utf-8")
    after = again(before, output)
    old, new = before.splitlines(True), after.splitlines(True)
    sys.stdout.writelines(difflib.unified_diff(old, new, page.name, "now", n=1))
    if write and before != after:
        page.write_text(after, encoding="utf-8")
    return before != after


def main() -> int:
    """Rerun all examples; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="change the pages")
    write = parser.parse_args().write
    with tempfile.TemporaryDirectory(prefix="tensoropt-examples-") as folder:
        (Path(folder) / "demo").mkdir()
        randomise(cnn_path("resnet50"), Path(folder) / "demo" / "resnet50.onnx")
        output = functools.cache(in_folder(Path(folder)))
        old = [page for page in PAGES if rerun(page, output, write)]
        with contextlib.chdir(folder):
            failed, _ = doctest.testfile(str(PYTHON), module_relative=False)
    return int(bool(failed) or (bool(old) and not write))


if __name__ == "__main__":
    sys.exit(main())

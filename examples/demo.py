"""The README's example on a real model: its frontier, then a plan that is run and checked.

Uses ResNet-50 from the onnx package, with random weights in place of its constant ones, which
would agree whatever a compiler did to them. Ends with PASSED, or stops at the command that fails.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from zoo import cnn_path, randomise

BIN = Path(sys.executable).parent
FOLDER = Path("demo")
MODEL = FOLDER / "resnet50.onnx"


def run(program: str, *arguments: str | Path) -> None:
    """Run one of our commands after showing it; stop where it fails."""
    words = [str(argument) for argument in arguments]
    print(f"\n$ {shlex.join([program, *words])}", flush=True)
    status = subprocess.run([BIN / program, *words], check=False).returncode
    if status:
        sys.exit(status)


def main() -> None:
    """Show the frontier on 4 devices, write a plan for 2, and check it on 2 ranks."""
    FOLDER.mkdir(exist_ok=True)
    randomise(cnn_path("resnet50"), MODEL)
    picture = FOLDER / "frontier.png"
    run("tensoropt-opt", MODEL, "--pareto", "--devices", "4", "--plot", picture)
    run("tensoropt-opt", MODEL, "--devices", "2", "--pick", "knee", "-o", FOLDER / "plan")
    run("tensoropt-run", FOLDER / "plan", "--check", MODEL)


if __name__ == "__main__":
    main()

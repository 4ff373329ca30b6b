"""Compile a model with 4 GiB of external data for 4 devices and print the peak resident memory.

python bench/memory/compilation.py [--layers 16] [--width 8192] [--devices 4]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tensoropt.runtime.support.flags import Parser, run_command

GIB = 1 << 30


def main() -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("--layers", default="16")
    parser.add_argument("--width", default="8192")
    parser.add_argument("--devices", default="4")
    arguments = parser.parse()
    maker = Path(__file__).with_name("make_external_model.py")
    with tempfile.TemporaryDirectory(prefix="tensoropt-peak-") as name:
        folder = Path(name)
        sizes = ["--layers", arguments.layers, "--width", arguments.width]
        subprocess.run([sys.executable, maker, folder, *sizes], check=True)
        tool = Path(sys.executable).with_name("tensoropt-opt")
        command = [tool, folder / "model.onnx", "--devices", arguments.devices]
        seconds, peak = _compile([*command, "-o", folder / "plan"])
        _print(folder, seconds, peak)
    return 0


def _compile(command: list[str | Path]) -> tuple[float, int]:
    """Return the wall seconds and the peak resident bytes of one command."""
    before = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the compilation failed with status {status}")
    return time.perf_counter() - before, usage.ru_maxrss * 1024


def _print(folder: Path, seconds: float, peak: int) -> None:
    data = sum(path.stat().st_size for path in folder.glob("*.data"))
    plan = sum(path.stat().st_size for path in (folder / "plan" / "weights").iterdir())
    print(f"{'external data':>14} {'plan weights':>13} {'seconds':>8} {'peak resident':>14}")
    print(f"{data / GIB:10.2f} GiB {plan / GIB:9.2f} GiB {seconds:8.1f} {peak / GIB:10.2f} GiB")


if __name__ == "__main__":
    sys.exit(run_command(main))

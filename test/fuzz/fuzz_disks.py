"""Run every command that writes on a disk that is full at a random size, or read-only.

Each case mounts a small file system in a mount namespace of its own, so only root can run it. A
command may succeed, if the disk is large enough. Otherwise it must end with status 1 and one line
that names the place and the cause, and it must leave no partial file. Ends in ``N cases, M
failed``; exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["OUTPUTS", "Case", "Inputs", "can_mount", "main", "wrong"]

_LIMIT_S = 120
_SIZES_KIB = (4, 512)  # between a disk for nothing and one for all outputs of the model below
_CAUSES = ("no space left on device", "read-only file system")
_MOUNT = """
mount -t tmpfs -o size="$1"k tmpfs "$2" || exit 99
test "$3" = full || mount -o remount,ro "$2" || exit 99
cd "$2"; shift 3; "$@"; status=$?; echo "left:"; find . -type f -printf '%P %s\\n'; exit $status
"""

OUTPUTS = {
    "plan": "tensoropt-opt {model} --devices 2 -o plan",
    "family": "tensoropt-opt {model} --train --loss mse:z,y --devices 2 --objective profile -o f",
    "text": "tensoropt-opt {model} --emit import -o a.mlir",
    "report": "tensoropt-opt {model} --devices 2 --pareto --report a.html",
    "plot": "tensoropt-opt {model} --devices 2 --pareto --plot a.svg",
    "outputs": "tensoropt-run {plan} --outputs a.npz",
    "log": "tensoropt-run {trained} --train --data {data} --steps 600 --log a.jsonl",
    "checkpoint": "tensoropt-run {trained} --train --data {data} --steps 2 --checkpoint saved",
    "export": "tensoropt-run {trained} --train --data {data} --steps 1 --model {model} "
    "--export a.onnx",
    "triton": "tensoropt-serve {plan} --export-triton models",
}
"""What is written, and by which command."""


class Inputs(NamedTuple):
    """What the commands read, made once: a model, its plans, and data to train on."""

    model: Path
    plan: Path
    trained: Path
    data: Path

    @classmethod
    def made(cls, folder: Path) -> Inputs:
        """Write them into ``folder``."""
        inputs = cls(*(folder / name for name in ("m.onnx", "plan", "trained", "data.npz")))
        width, draw = 64, np.random.default_rng(0)
        weights = [draw.normal(0, 0.1, (width, width)).astype(np.float32) for _ in range(2)]
        nodes = [
            helper.make_node("MatMul", ["x", "w0"], ["h"], "a"),
            helper.make_node("MatMul", ["h", "w1"], ["z"], "b"),
        ]
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, width]) for n in "xz"]
        held = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), inputs.model)
        np.savez(inputs.data, **{n: draw.normal(0, 1, (64, width)).astype("f4") for n in "xy"})
        opt = [_tool("tensoropt-opt"), inputs.model, "--devices", "2"]
        _checked([*opt, "-o", inputs.plan])
        _checked([*opt, "--train", "--loss", "mse:z,y", "-o", inputs.trained])
        return inputs


@dataclass(frozen=True)
class Case:
    """An output on a disk of so many KiB, which is read-only or becomes full."""

    output: str
    size_kib: int
    is_full: bool

    @classmethod
    def drawn(cls, random_: random.Random) -> Case:
        """Draw one."""
        low, high = _SIZES_KIB
        size = int(low * (high / low) ** random_.random()) // 4 * 4
        return cls(random_.choice(sorted(OUTPUTS)), size, random_.random() < 0.8)


def can_mount() -> bool:
    """Say whether this process may mount file systems."""
    with tempfile.TemporaryDirectory() as folder:
        return os.geteuid() == 0 and _run(Path(folder), 4, True, ["true"]).returncode == 0


def wrong(case: Case, inputs: Inputs) -> str | None:
    """Run a case; return what is wrong with its end, None if nothing is."""
    words = OUTPUTS[case.output].format(**inputs._asdict()).split()
    with tempfile.TemporaryDirectory(prefix="disk-") as folder:
        disk = Path(folder)
        ended = _run(disk, case.size_kib, case.is_full, [_tool(words[0]), *words[1:]])
    left = ended.stdout.rpartition("left:\n")[2].splitlines()
    partial = [name for name in left if ".tmp" in name or name.startswith(".")]
    if partial:
        return f"left {partial}"
    if ended.returncode == 0:
        return None if left else "ended with 0 and wrote nothing"
    return _wrong_refusal(case, ended, left)


def _wrong_refusal(
    case: Case, ended: subprocess.CompletedProcess[str], left: Sequence[str]
) -> str | None:
    errors = [line for line in ended.stderr.splitlines() if not line.startswith("note: ")]
    if ended.returncode != 1 or len(errors) != 1 or not errors[0].startswith("error: "):
        return f"ended with {ended.returncode}: {ended.stderr[-2000:]}"
    place = OUTPUTS[case.output].rpartition(" -")[2].split()[1]
    if place not in errors[0] or not any(cause in errors[0] for cause in _CAUSES):
        return f"no place or cause: {errors[0]}"
    if left and case.output != "log":  # of which the lines before stay
        return f"failed and left {left}"
    return None


def _run(
    disk: Path, size_kib: int, is_full: bool, command: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    kind = "full" if is_full else "read-only"
    words = ["unshare", "--mount", "sh", "-c", _MOUNT, "sh", str(size_kib), str(disk), kind]
    return subprocess.run(
        [*words, *command], capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )


def _tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _checked(command: Sequence[object]) -> None:
    subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=_LIMIT_S)


def main(argv: Sequence[str] | None = None) -> int:
    """Run many cases; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="default: 200")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    if not can_mount():
        parser.error("only root may mount file systems, expected to run as root")
    random_, failed, refused = random.Random(arguments.seed), 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs.made(Path(folder))
        for _ in range(arguments.count):
            case = Case.drawn(random_)
            refused[case.output] += 1
            if (what := wrong(case, inputs)) is not None:
                failed += 1
                print(f"{case}: {what}", flush=True)
    print(", ".join(f"{count} of {name}" for name, count in sorted(refused.items())))
    print(f"{arguments.count} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

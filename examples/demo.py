"""What tensoropt is for, in under a minute, on a real model: `make demo`.

A frontier of ResNet-50 with its picture, a plan that is run on two ranks and compared with one
device, and a few steps of training. The model is the one in the onnx package, with random weights
in place of its constant ones, which would agree whatever a compiler did to them. Every command is
shown before it runs; the demo stops at the first that fails.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from zoo import cnn_path, randomise

BIN = Path(sys.executable).parent
FOLDER = Path("demo")
MODEL = FOLDER / "resnet50.onnx"
LOSS = "softmax-cross-entropy:r174,labels"
RUNS = sys.platform == "linux"  # elsewhere people plan only


def run(title: str, *words: str | Path) -> None:
    """Run one of our commands after showing it; stop where it fails."""
    program, *arguments = (str(word) for word in words)
    print(f"\n# {title}\n$ {shlex.join([program, *arguments])}", flush=True)
    status = subprocess.run([BIN / program, *arguments], check=False).returncode
    if status:
        sys.exit(status)


def plan() -> None:
    """Show the frontier on 4 devices; plan for 2 and check the plan on 2 ranks."""
    frontier = ("--pareto", "--epsilon", "0.05", "--plot", FOLDER / "frontier.png")
    title = "The trade-offs on 4 devices, within 5%, predicted; and a picture of them"
    run(title, "tensoropt-opt", MODEL, "--devices", "4", *frontier)
    folder = FOLDER / "plan"
    chosen = ("--devices", "2", "--pick", "knee")
    run("A plan for 2 devices: one graph each", "tensoropt-opt", MODEL, *chosen, "-o", folder)
    if RUNS:
        run("Do both together compute what one does?", "tensoropt-run", folder, "--check", MODEL)


def train() -> None:
    """Plan the training step for 2 devices, and take a few steps."""
    folder = FOLDER / "train"
    step = ("--train", "--loss", LOSS, "--recompute", "none", "--epsilon", "0.05")
    title = "The whole training step, planned for 2 devices"
    run(title, "tensoropt-opt", MODEL, "--devices", "2", *step, "-o", folder)
    if RUNS:
        take_steps(folder)


def write_data(path: Path) -> None:
    """Write one image with its label."""
    rng = np.random.default_rng(0)
    image = rng.standard_normal((1, 3, 224, 224), dtype=np.float32)
    np.savez(path, **{"gpu_0/data_0": image, "labels": rng.integers(0, 1000, 1)})


def take_steps(folder: Path) -> None:
    """Train on one image, and print the losses."""
    data, log = FOLDER / "data.npz", FOLDER / "log.jsonl"
    write_data(data)
    steps = ("--steps", "8", "--learning-rate", "0.0001", "--log", log)
    run("Eight steps of it", "tensoropt-run", folder, "--train", "--data", data, *steps)
    losses = [json.loads(line)["loss"] for line in log.read_text().splitlines()]
    print("loss after each step:", *(f"{loss:.3g}" for loss in losses))


def main() -> None:
    """Do all of it in the folder ``demo``."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "log.jsonl").unlink(missing_ok=True)  # a log is added to
    randomise(cnn_path("resnet50"), MODEL)
    plan()
    train()
    print(f"\nAll of it is in {FOLDER}/: frontier.png has the picture.")


if __name__ == "__main__":
    main()

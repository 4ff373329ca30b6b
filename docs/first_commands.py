"""Run the README's blocks of commands and Python, as written, from `pip install` on.

    python docs/first_commands.py FOLDER    in a new folder, with a new environment

`make wheel` does so with the wheel in dist/; `make full` skips the installation. Only the ports
differ: free ones replace those in the README.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FIRST = "Install, plan, run, serve"
NOT_RUN = ("GPUs",)
"""Sections with commands that need other hardware."""

_SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"(?:^    [^\n]*\n)(?:(?:^    [^\n]*)?\n)*", re.MULTILINE)
_COMMAND = re.compile(r"^    \$ (.+)$", re.MULTILINE)
_SERVES = re.compile(r"^serving at http://([\w.:]+)", re.MULTILINE)
_START_S = 300.0  # on a machine with other work, too
_NAMES = "import numpy as np\nimage = np.zeros((1, 3, 224, 224), np.float32)\n"
"""Names that the reader of the README defines before its Python."""


class Block(NamedTuple):
    """The commands of an indented block, or its Python."""

    section: str
    commands: Sequence[str]
    python: str


def blocks() -> Iterator[Block]:
    """Yield the README's blocks in order."""
    for section, text in _SECTION.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        for block in _BLOCK.findall(text):
            commands = _COMMAND.findall(block)
            python = "" if commands else re.sub("^    ", "", block, flags=re.MULTILINE)
            yield Block(section, commands, python)


def commands() -> list[str]:
    """Return the commands of the first section, in order: the first installs."""
    return [line for block in blocks() if block.section == FIRST for line in block.commands]


def write_model(path: Path) -> None:
    """Write the model of which the section speaks: 4 numbers in, 3 out, any number of samples."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape, dtype=np.float32), name)
        for name, shape in (("w1", (4, 64)), ("w2", (64, 3)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["s"], name="second"),
        helper.make_node("Softmax", ["s"], ["y"], name="softmax", axis=-1),
    ]
    ends = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])]
        for name, size in (("x", 4), ("y", 3))
    )
    graph = helper.make_graph(nodes, "flowers", *ends, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, path)


def write_files(folder: Path) -> None:
    """Write the files that the README names: models, and the files of `make demo`."""
    for path in ("bench", "examples", "test", "test/runtime"):
        sys.path.insert(0, str(ROOT / path))
    from demo import write_data
    from handmade_decoder import write_decoder
    from letters import LETTERS, write_letters
    from zoo import cnn_path, randomise

    write_model(folder / "model.onnx")
    (folder / "demo").mkdir()
    randomise(cnn_path("resnet50"), folder / "demo" / "resnet50.onnx")
    write_data(folder / "demo" / "data.npz")
    write_letters(folder / "tokenizer.json")
    context = json.dumps({"max_position_embeddings": 2048, "eos_token_id": len(LETTERS)})
    (folder / "config.json").write_text(context, encoding="utf-8")
    how = {"layers": 1, "in_place": True, "vocabulary": len(LETTERS) + 1}
    write_decoder(folder / "decoder.onnx", **how)


def run_block(folder: Path, path: Path, block: Block, more: Mapping[str, str] | None = None) -> str:
    """Run a block in ``folder`` with the programs of ``path`` first; return the last answer.

    ``more`` are variables of the environment. A server runs until the command after it has ended.
    Commands and what they print go to stdout. Raises CalledProcessError where one fails.
    """
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}", **(more or {})}
    if block.python:
        words = [path / "python", "-c", f"{_NAMES}{block.python}"]
        subprocess.run(words, cwd=folder, env=environment, check=True)
    lines, answer = iter(block.commands), ""
    for line in lines:
        if not line.startswith("tensoropt-serve"):
            _run(line, folder, environment)
            continue
        with _served(line, folder, environment) as address:
            for ask in lines:
                answer = _ask(ask.replace("localhost:8000", address), folder, environment)
    return answer


def _run(line: str, folder: Path, environment: Mapping[str, str]) -> None:
    print(f"$ {line}", flush=True)
    start = time.monotonic()
    subprocess.run(line, shell=True, cwd=folder, env=environment, check=True)
    print(f"# {time.monotonic() - start:.1f} s", flush=True)


def _ask(line: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run a request, and return the answer."""
    print(f"$ {line}", flush=True)
    done = subprocess.run(
        line, shell=True, cwd=folder, env=environment, check=True, capture_output=True
    )
    print(done.stdout.decode(), flush=True)
    return done.stdout.decode()


@contextmanager
def _served(line: str, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Have the server of ``line`` up, and yield where it listens."""
    print(f"$ {line}", flush=True)
    log = folder / "serve.log"
    words = [*shlex.split(line), "--port", "0", "--grpc-port", "0"]
    with log.open("wb") as sink:
        server = subprocess.Popen(words, cwd=folder, env=environment, stdout=sink, stderr=sink)
    try:
        yield _address(server, log)
    finally:
        server.terminate()
        server.wait()


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and server.poll() is None:
        found = _SERVES.search(log.read_text())
        if found is not None:
            print(log.read_text(), end="", flush=True)
            return found[1]
        time.sleep(0.05)
    raise SystemExit(f"tensoropt-serve: expected it to serve, got: {log.read_text()}")


def runnable() -> Iterator[Block]:
    """Yield the blocks to run, without the installation."""
    install = commands()[0]
    for block in blocks():
        if block.section not in NOT_RUN:
            yield block._replace(commands=[line for line in block.commands if line != install])


def main() -> None:
    """Install and run all of it in the folder that the command line names."""
    folder = Path(sys.argv[1])
    venv.create(folder / "venv", with_pip=True)
    path = (folder / "venv" / "bin").absolute()
    (folder / "dist").symlink_to((ROOT / "dist").absolute())
    _run_quietly(commands()[0], folder, path)
    subprocess.run([path / "python", __file__, "--files", folder], check=True)
    run_all(folder, path)


def run_all(folder: Path, path: Path, more: Mapping[str, str] | None = None) -> None:
    """Run all blocks, with the programs of ``path``. The job of the README ends with them."""
    own = {"TENSOROPT_JOBS": str((folder / "jobs").absolute()), **(more or {})}
    try:
        for block in runnable():
            answer = run_block(folder, path, block, own)
            if block.section == FIRST and answer:
                assert json.loads(answer)["outputs"][0]["shape"] == [1, 3], answer
    finally:
        environment = {**os.environ, **own}
        subprocess.run([path / "tensoropt-job", "stop", "demo"], env=environment, check=False)


def _run_quietly(line: str, folder: Path, path: Path) -> None:
    """Run the installation, which has much to say."""
    print(f"$ {line}", flush=True)
    words = shlex.split(line)
    command = [path / words[0], *words[1:], "--quiet", "--disable-pip-version-check"]
    own = {**os.environ, "CC": "false", "CXX": "false"}  # nothing is to be compiled
    subprocess.run(command, cwd=folder, env=own, check=True)


if __name__ == "__main__":
    if sys.argv[1] == "--files":
        write_files(Path(sys.argv[2]))
    else:
        main()

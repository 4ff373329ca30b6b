"""Run the README's commands from `pip install` to an answer of a served model, as written.

    python docs/first_commands.py FOLDER    in a new folder, with a new environment

`make wheel` does so with the wheel in dist/; `make test` skips the installation. Only the ports
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SECTION = re.compile(r"^## Install, plan, run, serve\n(.*?)^## ", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^    \$ (.+)$", re.MULTILINE)
_SERVES = re.compile(r"^serving at http://([\w.:]+)", re.MULTILINE)
_START_S = 60.0


def commands() -> list[str]:
    """Return the commands of the README's section, in order: the first installs."""
    section = _SECTION.search((ROOT / "README.md").read_text(encoding="utf-8"))
    if section is None:
        raise SystemExit("README.md: expected a section 'Install, plan, run, serve'")
    return _COMMAND.findall(section[1])


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


def run_all(folder: Path, path: Path, lines: list[str]) -> str:
    """Run ``lines`` in ``folder`` with the programs of ``path`` first; return the last answer.

    Commands and what they print go to stdout. Raises CalledProcessError where one fails.
    """
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    *before, serve, ask = lines
    for line in before:
        print(f"$ {line}", flush=True)
        start = time.monotonic()
        subprocess.run(line, shell=True, cwd=folder, env=environment, check=True)
        print(f"# {time.monotonic() - start:.1f} s", flush=True)
    with _served(serve, folder, environment) as address:
        print(f"$ {ask}", flush=True)
        asked = ask.replace("localhost:8000", address)
        answer = subprocess.run(
            asked, shell=True, cwd=folder, env=environment, check=True, capture_output=True
        )
    print(answer.stdout.decode(), flush=True)
    return answer.stdout.decode()


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


def main() -> None:
    """Install and run all of it in the folder that the command line names."""
    folder = Path(sys.argv[1])
    venv.create(folder / "venv", with_pip=True)
    path = (folder / "venv" / "bin").absolute()
    (folder / "dist").symlink_to((ROOT / "dist").absolute())
    install, *others = commands()
    _run_quietly(install, folder, path)
    subprocess.run([path / "python", __file__, "--model", folder / "model.onnx"], check=True)
    answer = json.loads(run_all(folder, path, others))
    assert answer["outputs"][0]["shape"] == [1, 3], answer


def _run_quietly(line: str, folder: Path, path: Path) -> None:
    """Run the installation, which has much to say."""
    print(f"$ {line}", flush=True)
    words = shlex.split(line)
    command = [path / words[0], *words[1:], "--quiet", "--disable-pip-version-check"]
    own = {**os.environ, "CC": "false", "CXX": "false"}  # nothing is to be compiled
    subprocess.run(command, cwd=folder, env=own, check=True)


if __name__ == "__main__":
    if sys.argv[1] == "--model":
        write_model(Path(sys.argv[2]))
    else:
        main()

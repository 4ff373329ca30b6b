"""What the ranks of one machine map of weights that each of them has whole: MiB.

    python bench/shared_weights.py               on 2 and 4 ranks
    python bench/shared_weights.py --ranks 2

The model looks rows up in a table of 64 MiB (`Gather`) and multiplies by a weight of 64 MiB
(`MatMul`); the plan splits the batch, so every rank has all of both. Rss counts a page once for
each process that maps it, Pss shares it among them: what is mapped once shows as the difference.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tensoropt.runtime.pool.session import Session
from tensoropt.runtime.support.tables import columns

_ROWS, _WIDTH, _BATCH = 16384, 1024, 16384
_MIB = 1 << 20


def _model(path: Path) -> None:
    table = np.ones((_ROWS, _WIDTH), np.float32)
    weights = {"table": table, "w": np.ones((_WIDTH, _ROWS), np.float32)}
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], "rows"),
        helper.make_node("ReduceMean", ["rows"], ["mean"], "mean", axes=[1], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["y"], "y"),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [8, _BATCH // 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, _ROWS])
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [ids], [y], held)
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin")


def _kept(pid: int) -> Iterator[tuple[str, int, int]]:
    """Yield what each mapping of weights, and all together, have of memory: Rss and Pss."""
    whole, files = [0, 0], [0, 0]
    is_file = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        key, _, rest = line.partition(":")
        if key in ("Rss", "Pss"):
            place, size = key == "Pss", int(rest.split()[0]) * 1024
            whole[place] += size
            files[place] += size * is_file
        elif " " in key:
            is_file = ".bin" in line
    yield "process", *whole
    yield "files of weights", *files


def rows(folder: Path, ranks: int) -> Iterator[list[str]]:
    """Yield the rows of the table for a plan on so many ranks."""
    model, plan = folder / "model.onnx", folder / f"{ranks}.plan"
    flags = ["--mesh", str(ranks), "--search", "data-parallel", "-o", plan]
    command = [Path(sys.executable).with_name("tensoropt-opt"), model, *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with Session(plan, threads=1) as session:
        session.run({"ids": np.arange(_BATCH).reshape(8, -1)})
        for rank, pid in enumerate(session.pids):
            for what, rss, pss in _kept(pid):
                yield [f"{ranks}", f"{rank}", what, f"{rss / _MIB:.1f}", f"{pss / _MIB:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _model(folder / "model.onnx")
        found = [row for ranks in args.ranks for row in rows(folder, ranks)]
    print("\n".join(columns([["ranks", "rank", "what", "Rss", "Pss"], *found])))


if __name__ == "__main__":
    main()

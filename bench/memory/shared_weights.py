"""Weights of the ranks of one machine, in memory and on disk: MiB, of all ranks together.

    python bench/memory/shared_weights.py               all models, on 2 and 4 ranks
    python bench/memory/shared_weights.py gpt --ranks 2

Resident memory (Rss) counts a page once for each process that maps it. Pss divides it among them,
so that its sum is the memory that the machine provides. `replicated` plans split the batch alone,
so that every rank has all weights; `split` plans are the leanest. `table` looks up rows of a table
of 64 MiB (`Gather`) and multiplies by a weight of 64 MiB (`MatMul`); the other models are those of
bench/accuracy/process_memory.py.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
from graphs.runnable import RUN
from inference.session import drawn
from onnx import TensorProto, helper, numpy_helper

from tensoropt.runtime.pool.session import Session
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.tables import columns

_ROWS, _WIDTH, _BATCH = 16384, 1024, 16384
_MIB = 1 << 20
_MODELS = ("table", "gpt", "resnet50")
_PLANS = {"replicated": ("--search", "data-parallel"), "split": ("--pick", "leanest")}


def _table(path: Path) -> None:
    shapes = {"table": (_ROWS, _WIDTH), "w": (_WIDTH, _ROWS)}
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], "rows"),
        helper.make_node("ReduceMean", ["rows"], ["mean"], "mean", axes=[1], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["y"], "y"),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [8, _BATCH // 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, _ROWS])
    random = np.random.default_rng(0)
    held = [
        numpy_helper.from_array(random.standard_normal(shape, np.float32), name)
        for name, shape in shapes.items()
    ]
    graph = helper.make_graph(nodes, "g", [ids], [y], held)
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin")


def _build(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    if name == "table":
        _table(path)
        return path
    return RUN[name].build(name).save(folder, seed=0)


def _resident_bytes(pid: int) -> tuple[int, int]:
    """Return the Rss and Pss of a process, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return sizes["Rss"], sizes["Pss"]


def _row(name: str, model: Path, kind: str, ranks: int) -> list[str]:
    plan = model.with_suffix(f".{kind}{ranks}")
    flags = ["--mesh", str(ranks), *_PLANS[kind], "-o", plan]
    command = [Path(sys.executable).with_name("tensoropt-opt"), model, *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    disk = sum(path.stat().st_size for path in plan.rglob("*") if path.is_file())
    with Session(plan, threads=1) as session:
        session.run(drawn(session))
        sizes = [_resident_bytes(pid) for pid in session.pids]
    rss, pss = (sum(size) for size in zip(*sizes, strict=True))
    return [name, kind, str(ranks), *(f"{size / _MIB:.0f}" for size in (disk, rss, pss))]


def rows(names: list[str], counts: list[int]) -> Iterator[list[str]]:
    """Yield the rows of the table."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            model = _build(name, Path(folder))
            for kind in _PLANS:
                yield from (_row(name, model, kind, ranks) for ranks in counts)


def main() -> None:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=_MODELS, help=f"default: {', '.join(_MODELS)}")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    args = parser.parse()
    found = rows(args.models, args.ranks)
    print("\n".join(columns([["model", "plan", "ranks", "disk", "Rss", "Pss"], *found])))


if __name__ == "__main__":
    sys.exit(run_command(main))

"""Predicted memory of long attention, compared with the tensors that ONNX Runtime has on each rank.

    python bench/memory/attention.py            2 and 4 ranks, with a split sequence and split heads
    python bench/memory/attention.py --write    into docs/benchmarks.md too

A model is one attention between products, on ranks without a kernel for it. Its keys travel in a
ring, or its heads are split and run in blocks. Compared is the memory without weights: as charged
by the search, which does not see the nodes of a rank; of the nodes of the plan; and the live bytes
of a run on real ranks, by the nodes, the order and the shapes that ONNX Runtime records.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.builder import Builder
from graphs.layers import attend, causal_mask, heads_of, linear, merge_heads
from schedule import Run
from sections import write_section
from without_kernels import without_kernels

from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.runtime.support.flags import Parser, run_command

_HEADS, _SIZE = 8, 64
_WAYS = {"ring": "sequence", "blocks": "heads"}
_HEAD = (
    "| attention | tokens | ranks | way | search | plan | run | search / run |\n"
    "|---|---|---|---|---|---|---|---|"
)
_TEXT = """
## Memory of long attention

`python bench/memory/attention.py --write`: memory of one attention of 8 heads of 64 elements
between products, in float32, without weights: charged by the search, of the nodes of the plan, and
live bytes of a run on real ranks, by the nodes, the order and the shapes that ONNX Runtime records.
In a ring the sequence is split; in blocks the heads are.

{table}
"""


def _model(folder: Path, tokens: int, *, causal: bool) -> Path:
    g, width = Builder("attention"), _HEADS * _SIZE
    x = g.input("x", "float32", 1, tokens, width)
    q, v = (heads_of(g, linear(g, x, width, width, n), _HEADS, _SIZE) for n in "qv")
    k = heads_of(g, linear(g, x, width, width, "k"), _HEADS, _SIZE, turned=True)
    mask = causal_mask(g, tokens) if causal else ""
    y = merge_heads(g, attend(g, q, k, v, _SIZE, mask), width)
    g.output(linear(g, y, width, width, "out"), "y", 1, tokens, width)
    return g.save(folder, seed=0)


def _rows() -> Iterator[str]:
    yield _HEAD
    for causal, tokens, ranks, way in product((False, True), (2048, 8192), (2, 4), _WAYS):
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as name:
            folder = Path(name)
            path, plan = _model(folder, tokens, causal=causal), folder / "plan"
            pins = ["--pin", f"node:*Attention={_WAYS[way]}", "--mesh", str(ranks)]
            pins += ["--device", str(without_kernels(folder))]
            if compile_model([str(path), *pins, "--pick", "fastest", "-o", str(plan)]):
                raise SystemExit(1)
            written = json.loads((plan / "plan.json").read_text())
            command = [sys.executable, __file__, "--rank", str(plan)]
            mpiexec = str(Path(sys.executable).with_name("mpiexec"))
            launched = [mpiexec, "-n", str(ranks), *command]
            done = subprocess.run(launched, check=True, capture_output=True, text=True)
            measured = max(map(int, done.stdout.split()))
        searched = written["frontier"][written["chosen"]]
        sizes = [row["transient_bytes"] for row in (searched, written["predicted"])]
        ratio = f"{sizes[0] / measured:.2f}"
        kind = "causal" if causal else "all keys"
        cells = kind, tokens, ranks, way, *map(_mib, (*sizes, measured)), ratio
        yield f"| {' | '.join(map(str, cells))} |"


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rank", type=Path, metavar="PLAN", help="be one rank of a plan")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    given = parser.parse()
    if given.rank:
        from mpi4py import MPI

        number = MPI.COMM_WORLD.rank
        run = Run(given.rank / f"rank{number}.onnx", given.rank / f"trace{number}", "kept")
        print(f"{run.peak()}\n", end="", flush=True)
        return
    lines = []
    for line in _rows():
        print(line, flush=True)
        lines.append(line)
    if given.write:
        write_section("attention_memory", _TEXT.format(table="\n".join(lines)))


if __name__ == "__main__":
    sys.exit(run_command(main))

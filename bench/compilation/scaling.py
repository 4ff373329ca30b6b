"""Time the compilation of GPT-3 175B on 8x8 by its number of equal layers.

    python bench/compilation/scaling.py          12, 24, 48, 96 layers, and one of 10,000 nodes
    python bench/compilation/scaling.py --layers 12 24 --write

Times are processor seconds per phase, with both threads of the search, so that other programs
matter little; only `wall` is elapsed time. Prints tables; ``--write`` puts them into
docs/benchmarks.md.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from graphs.catalog import MODELS
from sections import write_section

from compilation.compile_time import Row, compile_model, square, warm_up
from tensoropt.compiler.cost.device import load_device
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["Timing", "compile_layers", "table"]

_MODEL, _DEVICES, _DEVICE = "gpt3_175b", 64, "h200"
_EPSILONS = [0.05, 0.02]
_LIMIT_S = 60.0
_TEN_THOUSAND = 400  # layers

_TEXT = """
## Equal layers

`python bench/compilation/scaling.py --write`: GPT-3 175B on 64 H200 as 8x8, from the ONNX file
to the frontier, in processor seconds per phase (`search` and `points`, the costing of up to 100
points, for epsilon 5%; `wall` is the elapsed time of all phases). `distinct` counts the
different tables of nodes.

{layers}

The last line is the ratio of the most layers to the fewest; the logarithm of their number grows by
{log:.2f}. Phases that grow faster read or write every node of the file, or every node of every
point; equal steps of the elimination are computed once.

`ready` is the time before the search can begin: import, rules and tables. A graph of {nodes:,}
nodes ({deep} layers) is ready in {ready:.1f} processor seconds.
"""


@dataclass(frozen=True)
class Timing:
    """Compile times of a model of ``layers`` layers: ``fine`` is for the smaller epsilon."""

    layers: int
    coarse: Row
    fine: Row
    wall_s: float


_COLUMNS: dict[str, Callable[[Timing], float]] = {
    "import": lambda t: t.coarse.import_s,
    "prepare": lambda t: t.coarse.prepare_s,
    "tables": lambda t: t.coarse.tables_s,
    "ready": lambda t: t.coarse.ready_s,
    "search": lambda t: t.coarse.search_s,
    "points": lambda t: t.coarse.points_s,
    "whole": lambda t: t.coarse.whole_s,
    "wall": lambda t: t.wall_s,
    "search 2%": lambda t: t.fine.search_s,
}


def compile_layers(layers: int, folder: Path) -> Timing:
    """Compile the model with ``layers`` layers."""
    rows = _rows(layers, folder, _EPSILONS)
    started = time.perf_counter()
    coarse = next(rows)
    wall_s = time.perf_counter() - started
    return Timing(layers, coarse, next(rows), wall_s)


def _rows(layers: int, folder: Path, epsilons: list[float]) -> Iterator[Row]:
    model: Any = replace(MODELS[_MODEL], layers=layers)  # type: ignore[type-var]
    path = model.build(f"{_MODEL}_{layers}").save(folder)
    mesh, device = square(_DEVICES), load_device(_DEVICE)
    return compile_model(path, mesh, device, epsilons, _LIMIT_S, time.process_time)


def table(timings: list[Timing]) -> str:
    """Return a line per timing, and the ratios of the last to the first."""
    head = ["layers", "nodes", "distinct", *_COLUMNS]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for timing in timings:
        counts = [timing.layers, timing.coarse.nodes, timing.coarse.distinct]
        times = [f"{of(timing):.3f}" for of in _COLUMNS.values()]
        lines.append(f"| {' | '.join([*map(str, counts), *times])} |")
    first, last = timings[0], timings[-1]
    ratios = [f"{of(last) / of(first):.1f}x" for of in _COLUMNS.values()]
    growth = [f"{last.layers / first.layers:g}x", f"{last.coarse.nodes / first.coarse.nodes:.1f}x"]
    distinct = f"{last.coarse.distinct / first.coarse.distinct:.1f}x"
    return "\n".join([*lines, f"| {' | '.join([*growth, distinct, *ratios])} |"])


def _text(timings: list[Timing], deep: Row) -> str:
    log = math.log(timings[-1].layers) / math.log(timings[0].layers)
    parts = {"layers": table(timings), "log": log, "deep": _TEN_THOUSAND}
    return _TEXT.format(**parts, nodes=deep.nodes, ready=deep.ready_s)


def main() -> None:
    """Print the tables, and write them with --write."""
    given = _parser().parse()
    warm_up(_DEVICE)
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        timings = [compile_layers(n, Path(folder)) for n in given.layers]
        deep = next(_rows(_TEN_THOUSAND, Path(folder), [1.0]))
    text = _text(timings, deep)
    print(text.strip())
    if given.write:
        write_section("scaling", text)


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[12, 24, 48, 96])
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))

"""Shares of a run's time: on the ranks of the fastest plan, and in one process of ONNX Runtime.

    python bench/inference/step_shares.py resnet50             batch 1, 2 ranks
    python bench/inference/step_shares.py bert --batch 8

Ranks of one thread, and one process with as many threads, take turns (`turns`) while they are
traced. A node's time is its fastest tenth, the mean over ranks; for a collective it is the least
over ranks, which excludes waiting. `between` is the time of the fastest tenth of the runs beyond
all nodes: waits between ranks, and ONNX Runtime's overhead between nodes.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
from speed.contenders import read_inputs
from speed.inference import forward_pass
from speed.models import SPEED_RUN
from speed.plans import Sizes, planned
from training_data import draw
from turns import Gate, Place, Turn, take_turns

from tensoropt.runtime.check.trace import Times, kernel_times_s, merge_ranks
from tensoropt.runtime.launch.world import world
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.session import rank_session
from tensoropt.runtime.support.collectives import ALONE, PLAIN
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.tables import columns

_RANKS, _ALONE = "ranks", "one process"
_WARM_UP, _STEPS = 3, 3
_SHARES = {
    **dict.fromkeys(("Conv", "Gemm", "MatMul", "FusedMatMul"), "convolutions, products"),
    **dict.fromkeys(("ReorderInput", "ReorderOutput"), "blocks of channels and back"),
    **dict.fromkeys(("Concat", "Gather", "Pad", "Slice", "Split"), "pieces of tensors"),
    **dict.fromkeys((*PLAIN, *ALONE), "collectives"),
}
_OTHERS, _BETWEEN = "other nodes", "between"


def run_rank(place: Place, gate: Gate, plan: Path, data: Path, trace: Path) -> Times:
    """Run a rank of a plan; return its nodes' operators and seconds."""
    place.announce()
    rank, read = world().rank, Plan.load(plan)
    session = rank_session(read.graph(rank), 1, trace.with_suffix(f".{rank}"))
    inputs = read_inputs(data)
    for tensor in read.inputs:
        part = tensor.layout.part_of(inputs[tensor.name], rank)
        session.feed(tensor.name, np.ascontiguousarray(part))
    while gate():
        session.run()
    return kernel_times_s(session.end_trace(), _WARM_UP)


def run_alone(
    place: Place, gate: Gate, model: Path, data: Path, trace: Path, threads: int
) -> Times:
    """Run a model in one process; return its nodes' operators and seconds."""
    import onnxruntime as ort

    options, inputs = ort.SessionOptions(), read_inputs(data)
    options.intra_op_num_threads, options.enable_profiling = threads, True
    options.profile_file_prefix = str(trace.with_suffix(".alone"))
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    while gate():
        session.run(None, inputs)
    return kernel_times_s(Path(session.end_profiling()), _WARM_UP)


def shares(times: Sequence[Times], turns: Sequence[Turn]) -> dict[str, tuple[float, int]]:
    """Return seconds and number of nodes by kind of work, over the ranks of one way."""
    found: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    operators = {name: operator for name, (operator, _) in times[0].items()}
    for name, time_s in merge_ranks(list(times)).items():
        share = _SHARES.get(operators[name], _OTHERS)
        total_s, count = found[share]
        found[share] = total_s + time_s, count + 1
    fastest = sorted(turn.step_s for turn in turns)[: max(1, len(turns) // 10)]
    step_s = statistics.fmean(fastest)
    found[_BETWEEN] = step_s - sum(time_s for time_s, _ in found.values()), 0
    found["all"] = step_s, len(operators)
    return found


def table(ways: Mapping[str, Mapping[str, tuple[float, int]]]) -> str:
    """Return milliseconds, and numbers of nodes, of all ways in adjacent columns."""
    names = [*dict.fromkeys(_SHARES.values()), _OTHERS, _BETWEEN, "all"]
    rows = [["", *(cell for way in ways for cell in (f"{way}, ms", "nodes"))]]
    for name in names:
        found = [own.get(name, (0.0, 0)) for own in ways.values()]
        cells = [cell for time_s, count in found for cell in (f"{1e3 * time_s:.2f}", str(count))]
        rows.append([name, *cells])
    return "\n".join(columns(rows))


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("model", choices=SPEED_RUN)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=Sizes.ranks)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse()
    model: Any = replace(SPEED_RUN[given.model], batch=given.batch)  # type: ignore[type-var]
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as name:
        folder = Path(name)
        path, data = model.build(given.model).save(folder, seed=0), folder / "data.npz"
        np.savez(data, **draw(path, given.batch))
        plan, trace = planned(forward_pass, path, "ft", given.ranks, folder), folder / "trace"
        ranks = partial(run_rank, plan=plan, data=data, trace=trace)
        one = partial(run_alone, model=path, data=data, trace=trace, threads=given.ranks)
        ways = {_RANKS: (ranks, given.ranks), _ALONE: (one, 1)}
        turns, teams = take_turns(ways, given.rounds, _STEPS, _WARM_UP)
    print(table({way: shares(team.results, turns[way]) for way, team in teams.items()}))


if __name__ == "__main__":
    sys.exit(run_command(main))

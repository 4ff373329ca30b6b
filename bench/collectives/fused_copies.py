"""Cost of the copies for fused collectives, in a training step on 2 ranks.

    python bench/collectives/fused_copies.py            gpt2 and cnn, a minute
    python bench/collectives/fused_copies.py llama vit

A fused collective copies its operands into a buffer, and its results out of it (decision 54). This
script repeats these copies, tensor by tensor, and compares their processor time with a whole step
of one rank, for `cpu` plans that split the batch and the moments.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
from graphs.runnable import TRAINED
from train_plans import RECIPES, plans, write_plan
from train_runs import trained_by_turns
from training_data import batch_size, draw
from turns import take_turns

from tensoropt.runtime.inspection.graphs import Collective
from tensoropt.runtime.inspection.summary import collectives_of
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.collectives import JOINED, STARTS
from tensoropt.runtime.support.flags import Parser, run_command

_RANKS, _PLAN = 2, "zero 1"
_ROUNDS, _STEPS, _WARM_UP = 5, 4, 3
_COPIED_S = 0.2
_ITEM_BYTES = 4


def joined_line(name: str, folder: Path) -> str:
    """Return a printable line: the part of a step that its fused collectives spend on copies."""
    path = TRAINED[name].build(name).save(folder, seed=0)
    (plan,) = plans(path, RECIPES[name], _RANKS, [_PLAN])
    directory = write_plan(path, plan, folder)
    sent = collectives_of(Plan.read(directory))
    joined = [one for one in sent if STARTS.get(one.kind, one.kind) in JOINED]
    copied_s, step_s = _copied_s(joined), _step_s(name, path, directory, folder)
    kib = sum(sum(_copies(one)) for one in joined) / 1024
    return (
        f"{name}: {len(joined)} of {len(sent)} collectives are joined, and copy {kib:.0f} KiB in "
        f"{1e6 * copied_s:.0f} us, {copied_s / step_s:.2%} of a step ({1e3 * step_s:.0f} ms)"
    )


def _copies(one: Collective) -> Iterator[int]:
    """Yield the bytes of each copy, into the buffer and out of it."""
    kind = JOINED[STARTS.get(one.kind, one.kind)]
    out = {"AllGather": _RANKS, "ReduceScatter": 1 / _RANKS}.get(kind, 1)
    for shape in (one.shape, *one.others):
        assert shape is not None, "models of the benchmarks have fixed sizes"
        own = int(np.prod([int(size) for size in shape])) * _ITEM_BYTES
        yield own
        yield int(own * out)


def _copied_s(joined: Sequence[Collective]) -> float:
    """Return the processor time of all copies of a step."""
    sizes = [size for one in joined for size in _copies(one)]
    pairs = [(np.ones(size, np.uint8), np.empty(size, np.uint8)) for size in sizes]
    begin, runs = time.process_time(), 0
    while time.process_time() - begin < _COPIED_S:
        for source, target in pairs:
            np.copyto(target, source)
        runs += 1
    return (time.process_time() - begin) / runs


def _step_s(name: str, path: Path, directory: Path, folder: Path) -> float:
    """Return the processor time of a step on one rank."""
    data = folder / "data.npz"
    np.savez(data, **draw(path, batch_size(path)))
    rate = RECIPES[name].learning_rate
    way = partial(trained_by_turns, directory=directory, data=data, learning_rate=rate)
    turns, _ = take_turns({name: (way, _RANKS)}, _ROUNDS, _STEPS, _WARM_UP)
    return statistics.median(turn.cores_s for turn in turns[name]) / _RANKS


def main() -> None:
    """Print a line per model."""
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*TRAINED, []], help="default gpt2 and cnn")
    for name in parser.parse().models or ("gpt2", "cnn"):
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            print(joined_line(name, Path(folder)), flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))

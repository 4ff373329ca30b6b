"""Processor time of runs at batch 1 whose weights lie in small pages, and in large ones.

    python bench/large_pages.py                  all models of bench/speed_inference.py
    python bench/large_pages.py llama --rounds 80

Both are ONNX Runtime's session of the whole model on one thread; they take turns (`turns`). Printed
are the medians, the median of the ratios of neighbouring turns (above 1 large pages are faster),
and what it takes to put the weights into them, when the session is made.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from inference_ways import read_inputs
from speed_models import SPEED_RUN
from training_data import draw
from turns import Gate, Place, take_turns

from tensoropt.runtime.device.host_memory import exact_blocks
from tensoropt.runtime.session.common_memory import HostBlock, host_blocks
from tensoropt.runtime.session.large_pages import use_large_pages

_SMALL, _LARGE, _WARM_UP, _STEPS = "small", "large", 2, 2


def _leave(blocks: set[HostBlock]) -> None:
    pass


_PAGES: dict[str, Callable[[set[HostBlock]], None]] = {_SMALL: _leave, _LARGE: use_large_pages}


def run(place: Place, gate: Gate, model: Path, data: Path, pages: str) -> tuple[list[float], float]:
    """Return the seconds of a processor that each run takes, with weights in such pages, and that
    it took to put them there."""
    import onnxruntime as ort

    options, times = ort.SessionOptions(), list[float]()
    options.intra_op_num_threads = 1
    before = host_blocks()
    with exact_blocks():
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    made, start = host_blocks() - before, time.process_time()
    _PAGES[pages](made)
    put_s = time.process_time() - start
    inputs = read_inputs(data)
    while gate():
        start = time.process_time()
        session.run(None, inputs)
        times.append(time.process_time() - start)
    return times[_WARM_UP:], put_s


def line(name: str, rounds: int, folder: Path) -> str:
    """Return what was measured of a model."""
    given: Any = SPEED_RUN[name]
    path, data = replace(given, batch=1).build(name).save(folder, seed=0), folder / "data.npz"
    np.savez(data, **draw(path, 1))
    ways = {pages: (partial(run, model=path, data=data, pages=pages), 1) for pages in _PAGES}
    _, teams = take_turns(ways, rounds, _STEPS, _WARM_UP)
    (small, _), (large, put_s) = (teams[pages].results[0] for pages in (_SMALL, _LARGE))
    ratio = statistics.median(a / b for a, b in zip(small, large, strict=True))
    times = [f"{1e3 * statistics.median(found):.1f} ms" for found in (small, large)]
    put = f"{1e3 * put_s:.0f} ms to put them there"
    return f"{name}: small pages {times[0]}, large {times[1]}, ratio {ratio:.3f}; {put}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", choices=[*SPEED_RUN, []], help="default all")
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    for name in given.models or SPEED_RUN:
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            print(line(name, given.rounds, Path(folder)), flush=True)


if __name__ == "__main__":
    main()

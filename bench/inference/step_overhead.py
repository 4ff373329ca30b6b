"""Processor time of a rank in an inference step outside of ONNX Runtime, in microseconds.

    python bench/inference/step_overhead.py                 a small network, two inputs, on one rank
    python bench/inference/step_overhead.py --steps 20000

The program of a pool answers requests in this process, as a rank does: it reads a request, feeds
its parts to the session, binds outputs, runs, and sends the answer. The result is the processor
time from the start of reading to the sent answer, without ONNX Runtime's run, as median and
quartiles. In `same`, arrays are at
the same place in each request; in `others`, inputs and outputs alternate between two places;
`alone` are steps without requests.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.launch.world import world
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.blocks import Blocks, Room
from tensoropt.runtime.pool.inference import Inference
from tensoropt.runtime.pool.job import PoolJob
from tensoropt.runtime.pool.limit import RequestLimit
from tensoropt.runtime.pool.programs import Rank
from tensoropt.runtime.pool.serving import Server
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["Outside"]

_ROWS, _WIDTH = 4, 16
_WARM = 200


class _Timed:
    """A session of ONNX Runtime that sums the processor time of its runs."""

    def __init__(self, session: Any) -> None:
        self._session, self.inside_s = session, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_iobinding(self, binding: Any) -> None:
        start = time.process_time()
        self._session.run_with_iobinding(binding)
        self.inside_s += time.process_time() - start


class Outside:
    """A rank in this process, and its client."""

    def __init__(self, folder: Path, timeout_s: float | None = None) -> None:
        plan = Plan.load(_planned(folder))
        comm = world()
        job = PoolJob(str(plan.folder), "inference", {}, threads=1)
        self._program = Inference(Rank(job, plan, comm, CPU))
        self._session = self._program.session
        self._timed = self._session._session = _Timed(self._session._session)
        self._asking, channel = Pipe()
        limit = RequestLimit(timeout_s, comm, print)
        self._server = Server(self._program, channel, 0, limit, can_go_on=True)
        self._blocks, self._told = Blocks(), set[int]()
        self._rooms: list[Room] = []
        self._numbers = 0

    def request(self) -> Callable[[], None]:
        """Return a function that sends one request, with inputs and outputs in their own blocks."""
        shape = (np.dtype(np.float32), (_ROWS, _WIDTH))
        staged, room = (
            self._blocks.allocate({"x": shape, "z": shape}),
            self._blocks.allocate({"y": shape}),
        )
        self._rooms += [staged, room]
        for array in staged.arrays.values():
            array[...] = 1.0
        news = self._blocks.list_changes((staged, room), self._told)
        asked = {
            "message": {"outputs": ["y"]},
            "arrays": {name: place.facts() for name, place in staged.places.items()},
            "room": {name: place.facts() for name, place in room.places.items()},
            "texts": {},
        }
        self._answer({**asked, **news})
        text = {**asked, "blocks": {}, "gone": []}
        return lambda: self._asking.send_bytes(
            json.dumps({**text, "number": self._next()}).encode()
        )

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _answer(self, asked: dict[str, Any]) -> None:
        self._asking.send_bytes(json.dumps({**asked, "number": self._next()}).encode())
        self._server.answer_next()
        self._asking.recv_bytes()

    def time_request(self, send: Callable[[], None]) -> float:
        """Return the processor seconds of one request outside of ONNX Runtime."""
        send()
        self._timed.inside_s, start = 0.0, time.process_time()
        self._server.answer_next()
        took_s = time.process_time() - start
        self._asking.recv_bytes()
        return took_s - self._timed.inside_s

    def time_alone(self) -> float:
        """Return the processor seconds of a step without a request outside of ONNX Runtime."""
        self._timed.inside_s, start = 0.0, time.process_time()
        self._session.run()
        return time.process_time() - start - self._timed.inside_s


def _planned(folder: Path) -> Path:
    model, plan = folder / "model.onnx", folder / "plan"
    ends = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [_ROWS, _WIDTH])
        for name in ("x", "z", "y")
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "p"),
        helper.make_node("Add", ["p", "z"], ["y"], "y"),
    ]
    weight = numpy_helper.from_array(np.ones((_WIDTH, _WIDTH), np.float32), "w")
    graph = helper.make_graph(nodes, "g", [ends["x"], ends["z"]], [ends["y"]], [weight])
    imports = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), model)
    command = [Path(sys.executable).with_name("tensoropt-opt"), model, "--devices", "1", "-o", plan]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return plan


def _line(name: str, times_s: Sequence[float]) -> str:
    low, middle, high = (1e6 * quarter for quarter in statistics.quantiles(times_s, n=4))
    return f"{name}: {middle:.1f} us of a processor ({low:.1f} to {high:.1f})"


def main() -> None:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--timeout", type=float, help="timeout of a request in seconds")
    args = parser.parse()
    with tempfile.TemporaryDirectory() as folder:
        outside = Outside(Path(folder), args.timeout)
    requests = [outside.request(), outside.request()]
    for name, sends in (("same", requests[:1]), ("others", requests)):
        turns = islice(cycle(sends), args.steps + _WARM)
        print(_line(name, [outside.time_request(send) for send in turns][_WARM:]))
    print(_line("alone", [outside.time_alone() for _ in range(args.steps)]))


if __name__ == "__main__":
    sys.exit(run_command(main))

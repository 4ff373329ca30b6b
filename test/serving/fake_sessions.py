"""A session without ranks: it doubles its input, and fails when it is told to."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import numpy as np

from tensoropt.runtime.support.errors import RankFailedError, UserError
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.model import Model
from tensoropt.serving.options import ServingOptions
from tensoropt.serving.protocol.tensors import TensorSpec
from tensoropt.serving.service import Service

INPUTS = (TensorSpec("x", "float32", (4, 3)),)
OUTPUTS = (TensorSpec("y", "float32", (4, 3)),)
BAD, DEADLY, SLOW = 666.0, 999.0, 555.0
"""An input that all ranks refuse, one that ends them, and one that takes a second."""


class FakeSession:
    """Runs once `gate` is set, and restarts once `restart_gate` is.

    ``begun`` counts the runs that have begun, also those that wait; ``runs`` has the inputs of all
    runs.
    """

    def __init__(self) -> None:
        self.is_alive, self.is_closed = True, False
        self.restarts, self.failing_restarts = 0, 0
        self.begun, self.runs = 0, list[np.ndarray]()
        self.gate, self.restart_gate = threading.Event(), threading.Event()
        self.gate.set(), self.restart_gate.set()
        self.lock = threading.Lock()

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        self.begun += 1
        with self.lock:
            return self._run(inputs["x"])

    def _run(self, x: np.ndarray) -> Mapping[str, np.ndarray]:
        assert self.gate.wait(60)
        if not self.is_alive:
            raise RankFailedError("rank 1 was ended by SIGKILL")
        self.runs.append(x.copy())
        if (x == SLOW).any():
            print("a slow run", file=sys.stderr, flush=True)
            time.sleep(1.0)
        if (x == DEADLY).any():
            self.is_alive = False
            raise RankFailedError("rank 1 was ended by SIGKILL")
        if (x == BAD).any():
            raise UserError("index out of bounds")
        return {"y": 2 * x}

    def empty(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
        return {name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()}

    def restart(self) -> None:
        assert self.restart_gate.wait(60)
        if self.failing_restarts:
            self.failing_restarts -= 1
            raise UserError("no memory for ranks")
        self.restarts += 1
        self.is_alive = True

    @property
    def silent_s(self) -> float:
        return 0.0

    def close(self, grace_s: float) -> None:
        self.is_closed = True


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, a minute at most."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


class EchoSession(FakeSession):
    """Answers strings with themselves."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return {"same": inputs["words"]}

    def empty(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
        return {name: np.empty(shape, object) for name, shape in shapes.items()}


WORDS = (TensorSpec("words", "string", (4, 2)),)
SAME = (TensorSpec("same", "string", (4, 2)),)


def model_of(session: FakeSession, **options: object) -> Model:
    return Model("double", INPUTS, OUTPUTS, session, ServingOptions(**options), Metrics())


@asynccontextmanager
async def served(session: FakeSession, **options: object):
    """Yield a service with one model, ``double``, that works."""
    timeout_s = float(options.pop("timeout_s", 60.0))
    metrics = Metrics()
    model = Model("double", INPUTS, OUTPUTS, session, ServingOptions(**options), metrics)
    work = asyncio.create_task(model.work())
    try:
        yield Service({"double": model}, metrics, timeout_s)
    finally:
        session.gate.set()
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await model.close()

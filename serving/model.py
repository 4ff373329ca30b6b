"""A served model: its ranks, and the queue of requests for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from tensoropt.runtime.plan.dims import bound
from tensoropt.runtime.support.errors import RankFailedError, one_line
from tensoropt.serving.batching.batcher import Batcher
from tensoropt.serving.batching.merging import Empty, Tensors
from tensoropt.serving.batching.sizes import Batching, batching_of
from tensoropt.serving.checking import check_request
from tensoropt.serving.encoder import Encoder
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.options import ServingOptions
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.protocol.requests import Answer, Infer
from tensoropt.serving.protocol.tensors import TensorSpec
from tensoropt.serving.ranks import LOOK_S, UNWANTED_S, Restarts

__all__ = ["VERSION", "Model", "RanksSession", "specs_of"]

VERSION = "1"
"""The only version of a model: its plan."""


class RanksSession(Protocol):
    """The part of `tensoropt.runtime.pool.session.Session` that a model needs."""

    @property
    def is_alive(self) -> bool:
        """True if all ranks are running."""
        ...

    def run(self, inputs: Tensors) -> Tensors:
        """Return all outputs, whole."""
        ...

    def empty(self, shapes: Mapping[str, Sequence[int]]) -> Tensors:
        """Return uninitialised input arrays that a run reads without a copy."""
        ...

    @property
    def silent_s(self) -> float:
        """Seconds that the current run has been without an answer; 0 without a run."""
        ...

    def restart(self) -> None:
        """Replace all ranks by new ranks."""
        ...

    def close(self, grace_s: float) -> None:
        """End all ranks; a run in progress has ``grace_s`` seconds to finish."""
        ...


def specs_of(tensors: Sequence[Any], dims: Mapping[str, int]) -> tuple[TensorSpec, ...]:
    """Return the tensors of a plan, with names of dimensions replaced by their sizes in ``dims``.

    Raises `UserError` for an element type that the protocol lacks.
    """
    specs = tuple(
        TensorSpec(
            tensor.name,
            tensor.dtype,
            tuple(bound(size, dims) if isinstance(size, str) else size for size in tensor.shape),
            tensor.allowed,
        )
        for tensor in tensors
    )
    for spec in specs:
        _ = spec.datatype
    return specs


class Model:
    """Answers requests for one plan while `work` runs, and restarts ranks that ended.

    ``encoder`` converts texts, if the plan is an encoder's.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        session: RanksSession,
        options: ServingOptions,
        metrics: Metrics,
        encoder: Encoder | None = None,
    ) -> None:
        self.encoder = encoder
        self.name, self.inputs, self.outputs = name, tuple(inputs), tuple(outputs)
        self._session, self._metrics, self._timeout_s = session, metrics, options.timeout_s
        found = batching_of(inputs, outputs, options.max_batch)
        self.batching: Batching | None = found if options.is_batching else None
        waited = metrics.queued.labels(name).observe
        delay_s, queue = options.batch_delay_s, options.queue
        self._batcher = Batcher(self._run, self.batching, delay_s, queue, waited)
        # Two threads wait for runs, and one starts ranks.
        self._threads = ThreadPoolExecutor(3, f"ranks-{name}")
        self._up, self._failed = asyncio.Event(), asyncio.Event()
        self._up.set()
        restart = partial(self._in_thread, session.restart)
        self._restarts = Restarts(name, restart, metrics)
        metrics.watch(name, lambda: len(self._batcher), lambda: float(self.is_ready))

    @property
    def is_ready(self) -> bool:
        """True if all ranks run, and no run has exceeded the timeout of its clients."""
        return self._up.is_set() and self._session.silent_s <= self._timeout_s

    @property
    def is_idle(self) -> bool:
        """True if no request is queued or in progress."""
        return self._batcher.is_idle

    def describe(self) -> str:
        """Describe the batching of requests, for the log."""
        if self.batching is None:
            return "one request per run"
        exactly = "of" if self.batching.is_fixed else "of up to"
        return f"requests share runs {exactly} {self.batching.size} samples"

    def check_room(self) -> None:
        """Raise `RefusedError` if the queue is full."""
        self._batcher.check_room()

    async def infer(self, request: Infer) -> Answer:
        """Return the outputs that ``request`` names; raises `RefusedError`."""
        has_samples = self.batching is not None
        check_request(request, self.inputs, self.outputs, has_samples=has_samples)
        outputs = await self._batcher.infer(request.inputs)
        wanted = request.requested(tuple(spec.name for spec in self.outputs))
        found = tuple((requested, outputs[requested.name]) for requested in wanted)
        return Answer(self.name, VERSION, request.id, found)

    async def work(self) -> None:
        """Answer requests and keep ranks alive until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._batcher.work())
            tasks.create_task(self._keep())

    async def close(self) -> None:
        """End the ranks; `work` has been cancelled."""
        self._batcher.refuse_all(RefusedError(Reason.UNAVAILABLE, "the server is ending"))
        await asyncio.to_thread(self._session.close, UNWANTED_S)
        self._threads.shutdown()

    async def _run(self, make: Callable[[Empty], Tensors], samples: int) -> Tensors:
        await self._up.wait()
        try:
            outputs: Tensors = await self._in_thread(lambda: self._step(make, samples))
        except RankFailedError as error:
            self._up.clear()
            self._failed.set()
            raise RefusedError(Reason.UNAVAILABLE, one_line(error)) from None
        self._restarts.forget()
        return outputs

    def _step(self, make: Callable[[Empty], Tensors], samples: int) -> Tensors:
        with self._metrics.step(self.name, samples):
            return self._session.run(make(self._session.empty))

    async def _keep(self) -> None:
        """Restart the ranks whenever some have ended."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._failed.wait()
            self._failed.clear()
            while not self._session.is_alive:
                self._up.clear()
                await self._restarts.start()
            self._up.set()

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

"""Batching of requests into runs, with a small delay to collect further requests.

A full run is submitted while another run is in progress, so that the ranks never idle between them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.serving.batching.merging import Empty, Tensors, merge, split_outputs
from tensoropt.serving.batching.pending import Pending
from tensoropt.serving.batching.sizes import Batching
from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["Batcher", "Run"]

_MOST_RUNS = 2  # the run in progress and the next run

Run = Callable[[Callable[[Empty], Tensors], int], Awaitable[Tensors]]
"""Runs a batch and returns its outputs.

Takes a function that creates the inputs in given arrays, and their number of samples.
"""


@dataclass(eq=False)
class _Request:
    inputs: Tensors
    samples: int
    outputs: asyncio.Future[Tensors]
    since_s: float


class Batcher:
    """Answers requests by calls of ``run``, at most two at a time.

    ``batching`` None runs each request separately. At most ``queue`` requests wait. A failed run
    fails only its own requests. ``waited`` is called with each request's time in the queue, in
    seconds.
    """

    def __init__(
        self,
        run: Run,
        batching: Batching | None,
        delay_s: float,
        queue: int,
        waited: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._run, self._batching, self._queue = run, batching, queue
        self._waited = waited
        size, delay = (batching.size, delay_s) if batching else (1, 0.0)
        self._pending = Pending[_Request](size, delay)
        self._under_way = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of queued requests."""
        return len(self._pending)

    @property
    def is_idle(self) -> bool:
        """True if no request is queued or in progress."""
        return not self._pending and not self._under_way

    def check_room(self) -> None:
        """Raise `RefusedError` if the queue is full."""
        if len(self._pending) >= self._queue:
            raise RefusedError(
                Reason.UNAVAILABLE, f"too many requests: {self._queue} wait already (--queue)"
            )

    async def infer(self, inputs: Tensors) -> Tensors:
        """Return the outputs for ``inputs``. A request cancelled in the queue is not computed.

        Raises `RefusedError` if the queue is full, the request has too many samples, or its run
        raises `UserError`. Other errors of the run are raised unchanged.
        """
        samples = self._samples(inputs)
        self.check_room()
        outputs = asyncio.get_running_loop().create_future()
        request = _Request(inputs, samples, outputs, time.monotonic())
        # Requests may share a run if all their sizes except the number of samples are equal.
        key = tuple(sorted((name, array.shape[1:]) for name, array in inputs.items()))
        self._pending.add(request, key, samples, request.since_s)
        self._changed.set()
        try:
            return await request.outputs
        finally:
            self._pending.remove(request)

    def _samples(self, inputs: Tensors) -> int:
        """Return a request's number of samples, 1 without batching."""
        if self._batching is None:
            return 1
        sizes = {name: len(array) for name, array in inputs.items()}
        samples = next(iter(sizes.values()))
        for name, size in sizes.items():
            if size != samples:
                raise _invalid(f"input '{name}': expected {samples} samples, got: {size}")
        if not 1 <= samples <= self._batching.size:
            raise _invalid(f"samples: expected 1 to {self._batching.size}, got: {samples}")
        return samples

    def refuse_all(self, error: Exception) -> None:
        """Fail all queued requests with ``error``."""
        while requests := self._pending.take():
            _refuse(requests, error)

    async def work(self) -> None:
        """Answer requests until cancelled."""
        async with asyncio.TaskGroup() as runs:
            while True:
                await self._due()
                self._under_way += 1
                runs.create_task(self._work_on(self._pending.take()))

    async def _due(self) -> None:
        """Wait until the next run is due."""
        while True:
            if not self._under_way:
                wait = self._pending.due_in(time.monotonic())
            else:  # the next run waits for the ranks, so it may as well be full
                is_due = self._under_way < _MOST_RUNS and self._pending.is_full
                wait = 0.0 if is_due else math.inf
            if wait <= 0:
                return
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wait == math.inf else wait):
                    await self._changed.wait()

    async def _work_on(self, requests: Sequence[_Request]) -> None:
        for request in requests:
            self._waited(time.monotonic() - request.since_s)
        try:
            await self._answer(requests)
        finally:
            self._under_way -= 1
            self._changed.set()

    async def _answer(self, requests: Sequence[_Request]) -> None:
        samples = sum(request.samples for request in requests)
        try:
            outputs = await self._run(lambda empty: self._inputs(requests, samples, empty), samples)
        except UserError as error:
            await self._answer_apart(requests, error)
        except Exception as error:
            _refuse(requests, error)
        else:
            parts: Sequence[Tensors] = [outputs]
            if self._batching is not None:
                parts = list(split_outputs(outputs, [request.samples for request in requests]))
            for request, part in zip(requests, parts, strict=True):
                _settle(request, part)

    async def _answer_apart(self, requests: Sequence[_Request], error: UserError) -> None:
        """Answer each request in a separate run: an error of one must not fail the others."""
        if len(requests) == 1:
            _refuse(requests, _invalid(one_line(error)))
            return
        for request in requests:
            await self._answer([request])

    def _inputs(self, requests: Sequence[_Request], samples: int, empty: Empty) -> Tensors:
        if self._batching is None:
            return requests[0].inputs
        inputs = [request.inputs for request in requests]
        return merge(inputs, self._batching.padded(samples), empty)


def _invalid(text: str) -> RefusedError:
    return RefusedError(Reason.INVALID, text)


def _refuse(requests: Sequence[_Request], error: Exception) -> None:
    for request in requests:
        _settle(request, error)


def _settle(request: _Request, found: Tensors | Exception) -> None:
    """Answer a request, unless it was cancelled."""
    if request.outputs.done():
        return
    if isinstance(found, Exception):
        request.outputs.set_exception(found)
    else:
        request.outputs.set_result(found)

"""Reloading of plans that were replaced in their folders, without a pause in serving."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from tensoropt.runtime.support.errors import TensoroptError, one_line
from tensoropt.serving.log import LOG
from tensoropt.serving.model import Model
from tensoropt.serving.service import Service
from tensoropt.serving.text_model import TextModel

__all__ = ["Reloads", "Reopen"]

Reopen = Callable[[str], Model | TextModel | None]
"""Opens the plan of a model again and starts its ranks; returns None if the plan is unchanged.

Raises `TensoroptError`.
"""

_LOOK_S = 0.05  # interval of polling a model for remaining requests


class Reloads:
    """Runs the models of a service, and after each `ask` replaces the models with new plans.

    The old model answers until the new model is ready, which then takes all new requests. The old
    model ends once its requests are answered, or after ``drain_s`` seconds.
    """

    def __init__(self, service: Service, reopen: Reopen, drain_s: float) -> None:
        self._service, self._reopen, self._drain_s = service, reopen, drain_s
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Look for new plans as soon as possible."""
        self._asked.set()

    async def work(self) -> None:
        """Run all models until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            works = {m.name: tasks.create_task(m.work()) for m in self._service.all_models}
            while True:
                await self._asked.wait()
                self._asked.clear()
                for name in works:
                    new = await self._open(name)
                    if new is not None:
                        old = self._service.replace(new)
                        ending, works[name] = works[name], tasks.create_task(new.work())
                        _tell(name, "the new plan answers")
                        await self._end(old, ending)

    async def _open(self, name: str) -> Model | TextModel | None:
        _tell(name, "its plan is loaded again")
        try:
            new = await _in_daemon(lambda: self._reopen(name))
        except (TensoroptError, OSError) as error:
            _tell(name, f"the old plan stays: {one_line(error)}")
            return None
        if new is None:
            _tell(name, "the plan is the same")
        return new

    async def _end(self, model: Model | TextModel, work: asyncio.Task[None]) -> None:
        until = time.monotonic() + self._drain_s
        try:
            while not model.is_idle and time.monotonic() < until:
                await asyncio.sleep(_LOOK_S)
        finally:
            work.cancel()
            await model.close()


def _tell(name: str, text: str) -> None:
    LOG.warning("model '%s': %s", name, text)


async def _in_daemon(
    work: Callable[[], Model | TextModel | None],
) -> Model | TextModel | None:
    """Call ``work`` in a daemon thread, so that the process can exit before it ends."""
    future: Future[Model | TextModel | None] = Future()
    future.set_running_or_notify_cancel()

    def call() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, name="reload", daemon=True).start()
    return await asyncio.wrap_future(future)

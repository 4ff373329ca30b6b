"""Restarts of a served model's ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tensoropt.runtime.support.errors import TensoroptError, one_line
from tensoropt.serving.log import LOG
from tensoropt.serving.metrics import Metrics

__all__ = ["LOOK_S", "UNWANTED_S", "Restarts"]

LOOK_S = 1.0
"""Interval in seconds of the liveness checks of idle ranks."""

UNWANTED_S = 1.0
"""Seconds that ranks may take to finish a run with a result that no client awaits any longer."""

_LONGEST_PAUSE_S = 30.0


class Restarts:
    """Restarts a model's ranks by ``restart``, with exponential back-off."""

    def __init__(
        self, name: str, restart: Callable[[], Awaitable[object]], metrics: Metrics
    ) -> None:
        self._name, self._restart, self._metrics = name, restart, metrics
        self._tries = 0

    def forget(self) -> None:
        """Reset the back-off: the ranks have worked."""
        self._tries = 0

    async def start(self) -> None:
        """Try one restart, and log a failure."""
        pause = min(2.0 ** (self._tries - 1), _LONGEST_PAUSE_S) if self._tries else 0.0
        self._tries += 1
        self._tell(f"ranks have ended and are started again in {pause:g} s")
        await asyncio.sleep(pause)
        try:
            await self._restart()
        except TensoroptError as error:
            self._tell(one_line(error))
            return
        self._metrics.restarts.labels(self._name).inc()
        self._tell("ranks are running again")

    def _tell(self, text: str) -> None:
        LOG.warning("model '%s': %s", self._name, text)

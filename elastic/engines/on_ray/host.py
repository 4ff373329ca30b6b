"""The actors of one generation, from their start to the outcome."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tensoropt.elastic.engines.engine import Outcome
from tensoropt.elastic.engines.on_ray.cluster import alive_nodes, short_name
from tensoropt.elastic.engines.on_ray.runner import Runner
from tensoropt.elastic.generation.job import GenerationJob
from tensoropt.runtime.support.errors import one_line

__all__ = ["RayHost", "runner_in"]

_PATIENCE_S = 8.0  # for the other ranks to end after one has failed
_NOTICE_S = 60.0  # for Ray to notice a lost node: by default it probes five times, 3 s apart
_ANSWER_S = 2.0  # for an actor to answer a liveness probe
_LOOK_S = 0.2  # between two polls of Ray
_KILL_S = 20.0
_SHARE = 0.25  # of a GPU, so that several generations can share it
_SECRET = 32  # bytes
_AT_ONCE = 2  # concurrent calls of an actor: one runs the rank, one is a liveness probe
_NODE_DIED = "node has died"  # in Ray's message about an actor


class RayHost:
    """Runs a rank on each of ``groups``, which are on ``nodes``; ``ended`` is called once."""

    def __init__(
        self,
        job: GenerationJob,
        groups: Sequence[PlacementGroup],
        nodes: Sequence[str],
        log: Path,
        ended: Callable[[Outcome], None],
    ) -> None:
        self._job, self._nodes, self._log, self._ended = job, nodes, log, ended
        share = _SHARE if job.provider == "cuda" and not job.share_gpus else 0
        self._actors = [runner_in(group, share) for group in groups]
        self._outcomes: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
        self._over = threading.Event()

    def facts(self) -> dict[str, Any]:
        """Return no facts: the ranks end with their coordinator, so no later one finds them."""
        return {}

    def begin(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def kill(self) -> None:
        self._kill_actors()
        self._over.wait(_KILL_S)

    def _kill_actors(self) -> None:
        for actor in self._actors:
            with suppress(Exception):  # ended already, or the cluster is gone
                ray.kill(actor)

    def _run(self) -> None:
        try:
            address, port = ray.get(self._actors[0].place.remote())
            meeting = {
                "MASTER_ADDR": address,
                "MASTER_PORT": str(port),
                "TENSOROPT_SECRET": secrets.token_hex(_SECRET),
            }
            for rank in range(len(self._actors)):
                threading.Thread(target=self._watch, args=(rank, meeting), daemon=True).start()
            outcome = self._outcome()
        except RayError as error:
            outcome = {"error": self._why(0, error)}
        except Exception as error:
            outcome = {"error": f"the Ray cluster failed: {one_line(error)}"}
        self._kill_actors()
        self._over.set()
        self._ended(outcome)

    def _watch(self, rank: int, meeting: dict[str, str]) -> None:
        """Read a rank's output and outcome from its actor."""
        run = self._actors[rank].run.options(num_returns="streaming")
        said: dict[str, Any] = {
            "error": f"rank {rank} of {len(self._actors)} ended without an outcome"
        }
        try:
            values = run.remote(self._job.kind, asdict(self._job), rank, len(self._actors), meeting)
            for reference in values:
                said = ray.get(reference)
                if "text" in said:
                    with self._log.open("ab") as log:
                        log.write(said["text"])
        except RayError as error:
            said = {"error": self._why(rank, error), "is_first": True}
        except Exception as error:
            said = {"error": f"the Ray cluster failed: {one_line(error)}"}
        self._outcomes.put((rank, said))

    def _outcome(self) -> Outcome:
        """Return the outcome of the generation: after a failure, wait only briefly for other ranks.

        Wait longer for ranks that do not answer: Ray may be about to notice a lost node.
        """
        found: dict[int, dict[str, Any]] = {}
        failed_at: float | None = None
        patience_s: float | None = None
        while len(found) < len(self._actors):
            try:
                rank, said = self._outcomes.get(timeout=patience_s)
            except queue.Empty:
                waited_s = time.monotonic() - (failed_at or 0.0)
                missing = [rank for rank in range(len(self._actors)) if rank not in found]
                errors = (self._current_error(rank) for rank in missing)
                if waited_s > _NOTICE_S or all(error is None for error in errors):
                    break
                patience_s = _ANSWER_S
                continue
            found[rank] = said
            if failed_at is None and "error" in said:
                failed_at, patience_s = time.monotonic(), _PATIENCE_S
        return self._combine(found)

    def _combine(self, found: dict[int, dict[str, Any]]) -> Outcome:
        """Combine the ranks' outcomes. Of several errors, return an actor's death first, then an
        error that a rank reported about itself."""
        failed = [(rank, said) for rank, said in found.items() if "error" in said]
        if not failed:
            return {"result": found[0]["result"]}
        ranks = len(self._actors)
        own = [said for rank, said in failed if said["error"].startswith(f"rank {rank} of {ranks}")]
        first = [said for _, said in failed if said.get("is_first")]
        return {"error": (first or own or [failed[0][1]])[0]["error"]}

    def _why(self, rank: int, error: RayError) -> str:
        """Return why an actor died; wait until Ray has noticed if its node died."""
        which, node = f"rank {rank} of {len(self._actors)}", self._nodes[rank]
        end = time.monotonic() + _NOTICE_S
        while time.monotonic() < end:
            if all(alive.id != node for alive in alive_nodes()):
                return f"{short_name(node)} is gone: {which} was killed with it"
            if not isinstance(error, ActorUnavailableError) and _NODE_DIED not in str(error):
                break
            time.sleep(_LOOK_S)
            error = self._current_error(rank) or error
        return f"{which} was killed on {short_name(node)}: {_reason(error)}"

    def _current_error(self, rank: int) -> RayError | None:
        """Return Ray's present error for an actor, None if it answers."""
        try:
            ray.get(self._actors[rank].place.remote(), timeout=_ANSWER_S)
        except RayError as error:
            return error
        return None


def runner_in(group: PlacementGroup, share: float) -> Any:
    """Return a rank's actor in the placement group ``group``, with ``share`` of its GPU."""
    where = PlacementGroupSchedulingStrategy(group, 0)
    actor: Any = ray.remote(Runner)
    return actor.options(
        num_cpus=0, num_gpus=share, max_concurrency=_AT_ONCE, scheduling_strategy=where
    ).remote()


def _reason(error: Exception) -> str:
    """Return the last line of Ray's message, which names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__

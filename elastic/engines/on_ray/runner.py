"""The actor that runs one rank as a subprocess."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ray

from tensoropt.elastic.engines.on_ray.cluster import own_address
from tensoropt.runtime.launch.launcher import launch_one
from tensoropt.runtime.launch.workers import worker_of
from tensoropt.runtime.support.errors import TensoroptError, one_line

__all__ = ["Runner"]

_LOOK_S = 0.2  # between two reads of the rank's output
_OTHERS = ("PMI", "SLURM_", "TORCHELASTIC_", "TENSOROPT_SOCKETS", "TENSOROPT_PORT")
"""Prefixes of variables that may come from the launcher of Ray itself, not of ranks."""


class Runner:
    """Runs one rank of a generation; the kernel kills the rank when this process ends."""

    def __init__(self) -> None:
        self._outcome: dict[str, Any] = {}

    def place(self) -> tuple[str, int]:
        """Return the address of this node, and a free port there."""
        address = own_address()
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as found:
            found.bind((address, 0))
            return address, int(found.getsockname()[1])

    def gpus(self) -> str:
        """Return the numbers of the GPUs that Ray has given this process."""
        return os.environ.get("CUDA_VISIBLE_DEVICES", "")

    def run(
        self, kind: str, values: dict[str, Any], rank: int, ranks: int, meeting: Mapping[str, str]
    ) -> Iterator[dict[str, Any]]:
        """Run the rank; yield its output as ``text``, then its ``result`` or ``error``."""
        log = os.memfd_create("tensoropt-output", os.MFD_CLOEXEC)
        arguments = (kind, values, rank, ranks, meeting, Path(f"/proc/{os.getpid()}/fd/{log}"))
        # The rank ends with the thread that started it.
        thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        thread.start()
        read = 0
        while True:
            is_over = not thread.is_alive()
            if text := os.pread(log, 1 << 20, read):
                read += len(text)
                yield {"text": text}
            elif is_over:
                yield self._outcome
                return
            else:
                time.sleep(_LOOK_S)

    def _run(
        self,
        kind: str,
        values: dict[str, Any],
        rank: int,
        ranks: int,
        meeting: Mapping[str, str],
        log: Path,
    ) -> None:
        try:
            worker = worker_of(kind)
            job = worker.job_from(values)
            if rank == 0:
                worker.check(job)
            node = ray.get_runtime_context().get_node_id()
            own = {name: text for name, text in os.environ.items() if not name.startswith(_OTHERS)}
            environment = {**own, **meeting, "TENSOROPT_NODE": node}
            self._outcome = {"result": launch_one(job, rank, ranks, environment, log)}
        except TensoroptError as error:
            self._outcome = {"error": str(error)}
        except Exception as error:
            self._outcome = {
                "error": f"rank {rank} of {ranks}: its actor failed: {one_line(error)}"
            }

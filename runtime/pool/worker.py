"""Worker entry point of pools."""

from __future__ import annotations

from tensoropt.runtime.launch.workers import Worker
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.job import PoolJob
from tensoropt.runtime.pool.serving import serve

__all__ = ["WORKER"]

WORKER = Worker(
    lambda values: PoolJob(**values),
    lambda job: Plan.load(job.plan),
    serve,
    lambda results: results,
    lambda values: None,
    requests=True,
)
"""Ranks of a pool answer the process that started them, and have no results of their own."""

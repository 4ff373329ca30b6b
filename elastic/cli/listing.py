"""The command that lists jobs, from their folders only, so that it is fast."""

from __future__ import annotations

import argparse

from tensoropt.elastic.cli.report import json_text, list_text
from tensoropt.elastic.control import JobStatus
from tensoropt.elastic.jobs import JobFolder, job_names
from tensoropt.elastic.records import facts_of
from tensoropt.runtime.support.errors import UserError

__all__ = ["list_jobs"]


def list_jobs(arguments: argparse.Namespace) -> None:
    """Print all jobs of this machine's user, running or not."""
    jobs = [(name, *_read_status(name)) for name in job_names()]
    if arguments.format == "json":
        for name, found, state in jobs:
            facts = {"name": name, "state": state} if found is None else facts_of(found)
            print(json_text(facts))
    else:
        print(list_text(jobs))


def _read_status(name: str) -> tuple[JobStatus | None, str]:
    """Return the status, and a word for its absence; an unreadable job does not hide others."""
    try:
        with JobFolder.open(name) as job:
            found = job.status()
            return found, "starting" if job.is_alive() else "never started"
    except UserError:
        return None, "unreadable"

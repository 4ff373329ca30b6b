"""The command that prints the address of a job's page, or serves the page of an ended job."""

from __future__ import annotations

import argparse
import sys
import threading

from tensoropt.elastic.jobs import JobFolder
from tensoropt.runtime.support.errors import UserError

__all__ = ["page"]


def page(arguments: argparse.Namespace) -> None:
    """Print the page's address, with the token: anybody who has that line can change the job."""
    with JobFolder.open(arguments.job) as folder:
        if not arguments.serve:
            print(folder.address().page)
        elif folder.is_alive():
            raise UserError(
                f"job '{arguments.job}': runs and serves its page already, expected no --serve"
            )
        else:
            _serve(folder)


def _serve(folder: JobFolder) -> None:
    """Serve the page of an ended job until Ctrl-C."""
    from tensoropt.elastic.api.ended_job import EndedJob
    from tensoropt.elastic.api.server import serve

    with serve(EndedJob(folder)) as serving:
        print(serving.page, flush=True)
        if sys.stderr.isatty():
            print("until Ctrl-C", file=sys.stderr)
        threading.Event().wait()

"""The read-only commands on one job."""

from __future__ import annotations

import argparse
import sys
import time

from tensoropt.elastic.api.client import Client
from tensoropt.elastic.cli.report import (
    event_line,
    json_text,
    profile_text,
    status_line,
    status_text,
    step_lines,
)
from tensoropt.elastic.control import OVER, JobStatus
from tensoropt.elastic.records import facts_of
from tensoropt.runtime.support.status_line import clear_line, show_line

__all__ = ["events", "log", "output", "profile", "status"]

_LOOK_S = 0.5


def status(arguments: argparse.Namespace, client: Client) -> None:
    """Print the job's status; with --follow, each change until it has ended."""
    found = _follow(client, arguments) if arguments.follow else client.status()
    is_json = arguments.format == "json"
    print(json_text(facts_of(found)) if is_json else status_text(found), flush=True)


def _follow(client: Client, arguments: argparse.Namespace) -> JobStatus:
    """Show each change until the job has ended; return its last status."""
    shown = None
    try:
        while (found := client.status()).state not in OVER:
            if found != shown and arguments.format == "json":
                print(json_text(facts_of(found)), flush=True)
            elif found != shown and sys.stderr.isatty():
                show_line(status_line(found))
            elif found != shown:
                print(status_line(found), flush=True)
            shown = found
            time.sleep(_LOOK_S)
    finally:
        clear_line()
    return found


def events(arguments: argparse.Namespace, client: Client) -> None:
    """Print the events; with --follow, until the job has ended."""
    found = client.follow() if arguments.follow else client.events()
    for event in found:
        is_json = arguments.format == "json"
        print(json_text(facts_of(event)) if is_json else event_line(event), flush=True)


def log(arguments: argparse.Namespace, client: Client) -> None:
    """Print the steps."""
    rows = client.steps(arguments.after, arguments.last)
    if arguments.format == "json":
        sys.stdout.writelines(f"{json_text(facts_of(row))}\n" for row in rows)
    else:
        sys.stdout.writelines(f"{line}\n" for line in step_lines(rows))


def output(arguments: argparse.Namespace, client: Client) -> None:
    """Print the ranks' output."""
    text = client.output()
    sys.stdout.write(json_text({"output": text}) + "\n" if arguments.format == "json" else text)


def profile(arguments: argparse.Namespace, client: Client) -> None:
    """Print throughput by number of devices."""
    rows = client.profile(arguments.devices)
    is_json = arguments.format == "json"
    print(json_text([facts_of(row) for row in rows]) if is_json else profile_text(rows))

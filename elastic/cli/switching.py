"""The commands that change a job: its devices, its plan, or its end."""

from __future__ import annotations

import argparse

from tensoropt.elastic.api.client import Client, PendingSwitch
from tensoropt.elastic.api.http import NoAnswerError
from tensoropt.elastic.cli.report import json_text, status_text, switch_text
from tensoropt.elastic.control import SwitchResult
from tensoropt.elastic.records import facts_of

__all__ = ["migrate", "scale", "stop"]


def scale(arguments: argparse.Namespace, client: Client) -> None:
    """Change the number of devices, or the plan; print the cost, or the state of the switch."""
    _print(
        client.scale(
            arguments.devices,
            plan=arguments.plan,
            method=arguments.method,
            wait=arguments.wait,
        ),
        arguments,
    )


def migrate(arguments: argparse.Namespace, client: Client) -> None:
    """Change to other devices; print the cost, or the state of the switch."""
    _print(client.migrate(arguments.to, method=arguments.method, wait=arguments.wait), arguments)


def _print(switch: SwitchResult | PendingSwitch, arguments: argparse.Namespace) -> None:
    is_json = arguments.format == "json"
    if isinstance(switch, PendingSwitch):
        facts = {"number": switch.number, "state": switch.state}
        print(json_text(facts) if is_json else f"switch {switch.number}: {switch.state}")
    else:
        print(json_text(facts_of(switch)) if is_json else switch_text(switch))


def stop(arguments: argparse.Namespace, client: Client) -> None:
    """End the job with a checkpoint; print its last status."""
    client.stop(wait=arguments.wait)
    is_json = arguments.format == "json"
    try:
        found = client.status()
    except NoAnswerError:  # an ended job can be read by its name, not by its URL
        if not arguments.wait:
            raise
        print(json_text({"ended": True}) if is_json else "it has ended")
    else:
        print(json_text(facts_of(found)) if is_json else status_text(found))
